// Informer follows one resource with client-go's shared informer, and prints
// what it sends and what it is told, a line each.
//
//	informer KUBECONFIG GROUP VERSION RESOURCE
package main

import (
	"fmt"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// printing shows the query of each request before it is sent.
type printing struct{ next http.RoundTripper }

func (p printing) RoundTrip(request *http.Request) (*http.Response, error) {
	fmt.Println("request", request.URL.RawQuery)
	return p.next.RoundTrip(request)
}

func main() {
	if err := follow(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow(arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("usage: informer KUBECONFIG GROUP VERSION RESOURCE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[0])
	if err != nil {
		return err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return printing{next} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource := schema.GroupVersionResource{
		Group: arguments[1], Version: arguments[2], Resource: arguments[3],
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(resource).Informer()
	tell := func(what string) func(any) {
		return func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if accessor, err := meta.Accessor(object); err == nil {
				fmt.Println(what, accessor.GetNamespace()+"/"+accessor.GetName(), accessor.GetResourceVersion())
			}
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell("added"),
		UpdateFunc: func(_, object any) { tell("updated")(object) },
		DeleteFunc: tell("deleted"),
	})
	if err != nil {
		return err
	}
	forever := make(chan struct{})
	factory.Start(forever)
	if !cache.WaitForCacheSync(forever, registration.HasSynced) {
		return fmt.Errorf("it does not sync")
	}
	fmt.Println("synced", len(informer.GetStore().ListKeys()))
	<-forever
	return nil
}
