//! The description of a subresource in OpenAPI.

use http::Method;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::parameters::schema_of;

const JSON: &str = "application/json";

/// The description of a subresource.
#[derive(Debug, Default)]
pub(super) struct Description {
    parameters: Vec<Value>,
    body: Option<Value>,
    response: Option<Value>,
    media_type: Option<&'static str>,
}

/// The parts of an operation that the user of the library describes.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    /// The parameters of the query.
    pub parameters: &'a [Value],
    /// The content of the request body, by media type.
    pub body: Option<Value>,
    /// The content of the response, by media type.
    pub response: Value,
}

impl Description {
    pub fn set_parameters<T: JsonSchema>(&mut self) {
        let schema = schema_of::<T>();
        let properties = schema.get("properties").and_then(Value::as_object).cloned();
        let parameter = |(name, mut schema): (String, Value)| {
            let mut parameter = Map::new();
            if let Some(description) =
                schema.as_object_mut().and_then(|all| all.remove("description"))
            {
                parameter.insert("description".to_owned(), description);
            }
            parameter.insert("in".to_owned(), "query".into());
            parameter.insert("name".to_owned(), name.into());
            if let Some(schema) = schema.as_object_mut() {
                schema.remove("nullable");
                schema.remove("default");
                schema.insert("uniqueItems".to_owned(), true.into());
            }
            parameter.insert("schema".to_owned(), schema);
            Value::Object(parameter)
        };
        self.parameters = properties.unwrap_or_default().into_iter().map(parameter).collect();
    }

    pub fn set_body<T: JsonSchema>(&mut self) {
        self.body = Some(schema_of::<T>());
    }

    pub fn set_response<T: JsonSchema>(&mut self) {
        self.response = Some(schema_of::<T>());
    }

    pub fn set_media_type(&mut self, media_type: &'static str) {
        self.media_type = Some(media_type);
    }

    /// The description of the operation of a method.
    pub fn operation(&self, method: &Method) -> Operation<'_> {
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
        let body = self.body.as_ref().filter(|_| has_body);
        let response = self.response.clone().unwrap_or_else(|| json!({"type": "string"}));
        let media_type =
            self.media_type.unwrap_or(if self.response.is_some() { JSON } else { "*/*" });
        Operation {
            parameters: &self.parameters,
            body: body.map(|schema| json!({JSON: {"schema": schema}})),
            response: json!({media_type: {"schema": response}}),
        }
    }
}
