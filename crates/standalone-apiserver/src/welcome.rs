//! The output of a server that has become ready.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;

/// Prints the line that configures kubectl. On a terminal, the address and commands to try are printed too.
pub(crate) fn print(name: &str, address: SocketAddr, kubeconfig: &Path, kinds: &[String]) {
    let export = format!("export KUBECONFIG={}", kubeconfig.display());
    if std::io::stdout().is_terminal() {
        print!("{}", welcome(name, address, &export, kinds));
    } else {
        println!("{export}");
    }
}

/// The lines for a terminal. The commands name the first kind of the program, or Namespaces if it has none of its own.
fn welcome(name: &str, address: SocketAddr, export: &str, kinds: &[String]) -> String {
    let kind = kinds.first().map_or("namespaces", String::as_str);
    format!(
        "{name} serves https://{address}. Use it in another terminal:\n\n  \
         {export}\n  \
         kubectl get {kind} --all-namespaces\n  \
         kubectl explain {kind}\n  \
         kubectl api-resources\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_the_address_and_commands_to_try() {
        let address = SocketAddr::from(([127, 0, 0, 1], 3000));
        let kinds = ["llamas".to_owned(), "farmpods".to_owned()];
        assert_eq!(
            welcome("farm-operator", address, "export KUBECONFIG=/tmp/kubeconfig", &kinds),
            "farm-operator serves https://127.0.0.1:3000. Use it in another terminal:\n\n  \
             export KUBECONFIG=/tmp/kubeconfig\n  \
             kubectl get llamas --all-namespaces\n  \
             kubectl explain llamas\n  \
             kubectl api-resources\n\n",
        );
        assert!(welcome("a", address, "", &[]).contains("kubectl get namespaces"));
    }
}
