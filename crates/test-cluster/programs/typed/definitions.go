package main

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

func replace(text, old, by string) string { return strings.ReplaceAll(text, old, by) }

// indent moves YAML to the right.
func indent(text string) string { return replace(text, "\n", "\n  ") }

// A definition with everything that can be said in a schema: what its types
// in Go hold as one of several things is easily lost on the way.
const definition = `
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: PLURAL, singular: SINGULAR, kind: KIND, listKind: KINDList, shortNames: [SHORT], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size, description: how large it is, priority: 1}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        description: what it is
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, format: int32, minimum: 1, maximum: 100, exclusiveMaximum: true}
              replicas: {type: integer, default: 1}
              color: {type: string, enum: [red, green], default: red}
              pattern: {type: string, pattern: "^a.*", minLength: 1, maxLength: 9}
              tags: {type: array, items: {type: string}, minItems: 0, maxItems: 5, x-kubernetes-list-type: set}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {x-kubernetes-int-or-string: true}}
              weights: {type: object, additionalProperties: {type: number, multipleOf: 0.5}}
              anything: {type: object, x-kubernetes-preserve-unknown-fields: true}
              closed: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: boolean, nullable: true, default: false}}}
              either:
                type: object
                properties: {a: {type: string}, b: {type: string}}
                oneOf: [{required: [a]}, {required: [b]}]
                not: {required: [a, b]}
              nested: {type: object, default: {deep: {list: [1, 2]}}, properties: {deep: {type: object, properties: {list: {type: array, items: {type: integer}}}}}}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    deprecationWarning: "use v1"
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func definitionOf(namespace, singular string) string {
	named := strings.NewReplacer(
		"GROUP", namespace+".example.com", "PLURAL", singular+"s", "SINGULAR", singular,
		"KIND", strings.ToUpper(singular[:1])+singular[1:], "SHORT", singular[:2],
	)
	return named.Replace(definition)
}

// definitions are made and changed by their own typed client; what they define
// is used by dynamic ones.
func definitions(w *world) {
	client := w.apiextensions.ApiextensionsV1().CustomResourceDefinitions()
	group := w.namespace + ".example.com"
	// No two of them may define the same, so that each has a name of its own;
	// what is done with several objects of a kind is done with those of others.
	name := "widgets." + group
	get := func() (*apiextensionsv1.CustomResourceDefinition, error) {
		return client.Get(w.ctx, name, metav1.GetOptions{})
	}
	made := func(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		object := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(definitionOf(w.namespace, "widget")), object); err != nil {
			panic(err)
		}
		object.Name = name
		object.Labels = map[string]string{"test": "definition"}
		change(object)
		return object
	}
	unchanged := func(*apiextensionsv1.CustomResourceDefinition) {}
	w.step("definition: create dry", func() (any, error) {
		return client.Create(w.ctx, made(unchanged), metav1.CreateOptions{DryRun: dryRun})
	})
	w.step("definition: create invalid", func() (any, error) {
		return client.Create(w.ctx, made(func(object *apiextensionsv1.CustomResourceDefinition) {
			object.Spec.Versions[0].Schema.OpenAPIV3Schema.Type = "nothing"
			object.Spec.Versions[1].Storage = true
			object.Name = "other." + group
		}), metav1.CreateOptions{})
	})
	w.step("definition: create", func() (any, error) {
		made, err := client.Create(w.ctx, made(unchanged), metav1.CreateOptions{})
		if err == nil {
			// How far it has come already is chance.
			made.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		}
		return made, err
	})
	w.step("definition: is established", func() (any, error) {
		var object *apiextensionsv1.CustomResourceDefinition
		err := w.eventually(func() (bool, error) {
			var err error
			object, err = get()
			return err == nil && isEstablished(object), err
		})
		return object, err
	})
	w.step("definition: list", func() (any, error) {
		return client.List(w.ctx, metav1.ListOptions{LabelSelector: "test=definition"})
	})
	// Controllers change its status meanwhile.
	changing := func(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
		w.step(name, func() (any, error) {
			var after *apiextensionsv1.CustomResourceDefinition
			err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				object, err := get()
				if err == nil {
					change(object)
					after, err = client.Update(w.ctx, object, metav1.UpdateOptions{})
				}
				return err
			})
			if err == nil {
				after.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
			}
			return after, err
		})
	}
	changing("definition: update", func(object *apiextensionsv1.CustomResourceDefinition) {
		object.Spec.Names.ShortNames = append(object.Spec.Names.ShortNames, "more")
		object.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["added"] = apiextensionsv1.JSONSchemaProps{
			Type: "array",
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{
				Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{
					Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}}},
				}},
			},
		}
	})
	changing("definition: update of what may not change", func(object *apiextensionsv1.CustomResourceDefinition) {
		object.Spec.Scope = apiextensionsv1.ClusterScoped
	})
	w.step("definition: update status", func() (any, error) {
		var after *apiextensionsv1.CustomResourceDefinition
		err := w.eventually(func() (bool, error) {
			object, err := get()
			if err != nil {
				return false, err
			}
			object.Status.Conditions = append(object.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: "Seen", Status: "True", Reason: "Typed", Message: "it was seen",
			})
			after, err = client.UpdateStatus(w.ctx, object, metav1.UpdateOptions{})
			return err == nil, err
		})
		if err != nil {
			return nil, err
		}
		return after.Status.Conditions[len(after.Status.Conditions)-1], nil
	})
	for _, patch := range []struct {
		name string
		form string
		text string
	}{
		{"merge", "application/merge-patch+json", `{"metadata":{"annotations":{"a":"b"}}}`},
		{"json", "application/json-patch+json", `[{"op":"add","path":"/spec/names/categories/-","value":"more"}]`},
		{"strategic", "application/strategic-merge-patch+json", `{"spec":{"preserveUnknownFields":false}}`},
	} {
		w.step("definition: patch "+patch.name, func() (any, error) {
			after, err := client.Patch(w.ctx, name, patchType(patch.form), []byte(patch.text), metav1.PatchOptions{})
			if err != nil {
				return nil, err
			}
			return []any{after.Annotations, after.Spec.Names}, nil
		})
	}

	kind := customKind(w, "v1")
	v1 := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	resource := w.dynamic.Resource(v1).Namespace(w.namespace)
	w.step("custom: is served", func() (any, error) {
		return done(w.eventually(func() (bool, error) {
			_, err := resource.List(w.ctx, metav1.ListOptions{})
			return err == nil, err
		}))
	})
	everyVerb(w, kind, plain{resource})
	w.step("custom: create in another version", func() (any, error) {
		object := mustObject(kind.object)
		object.SetAPIVersion(group + "/v1beta1")
		object.SetName("older")
		other := v1
		other.Version = "v1beta1"
		return w.dynamic.Resource(other).Namespace(w.namespace).Create(w.ctx, object, metav1.CreateOptions{})
	})
	w.step("custom: get in the first version", func() (any, error) {
		return resource.Get(w.ctx, "older", metav1.GetOptions{})
	})
	w.step("custom: list by a field", func() (any, error) {
		return resource.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
	})
	w.step("custom: get scale", func() (any, error) {
		return resource.Get(w.ctx, "older", metav1.GetOptions{}, "scale")
	})
	w.step("custom: patch scale", func() (any, error) {
		return resource.Patch(w.ctx, "older", patchType("application/merge-patch+json"),
			[]byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{}, "scale")
	})

	w.step("definition: delete another uid", func() (any, error) {
		return done(client.Delete(w.ctx, name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions("11111111-2222-3333-4444-555555555555"),
		}))
	})
	w.step("definition: delete", func() (any, error) {
		return done(client.DeleteCollection(w.ctx, metav1.DeleteOptions{PropagationPolicy: background}, metav1.ListOptions{LabelSelector: "test=definition", FieldSelector: "metadata.name=" + name}))
	})
	w.step("definition: is gone", func() (any, error) {
		return done(w.eventually(func() (bool, error) {
			_, err := get()
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		}))
	})
	w.step("custom: is not served any more", func() (any, error) {
		err := w.eventually(func() (bool, error) {
			_, err := resource.List(w.ctx, metav1.ListOptions{})
			return apierrors.IsNotFound(err), nil
		})
		if err != nil {
			return nil, err
		}
		return resource.List(w.ctx, metav1.ListOptions{})
	})
}

func isEstablished(object *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range object.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

func customKind(w *world, version string) kind {
	return kind{
		name:      "custom",
		namespace: w.namespace,
		object: `
apiVersion: ` + w.namespace + `.example.com/` + version + `
kind: Widget
spec:
  size: 3
  tags: [a, b]
  ports: [{name: a, port: 80}, {name: b, port: web}]
  weights: {a: 1.5}
  anything: {goes: [1, null, {a: b}]}
  closed: {}
  either: {a: x}
`,
		change:    `{spec: {color: green, unknown: 1}}`,
		patch:     `{spec: {weights: {b: 2}, tags: [c]}}`,
		jsonPatch: `[{"op":"add","path":"/spec/tags/-","value":"d"}]`,
		status:    `{status: {replicas: 1, phase: Good}}`,
		invalid:   `{spec: {size: 100, color: blue, tags: [a, a], pattern: b, weights: {a: 0.3}, either: {a: x, b: "y"}}}`,
	}
}
