// Typed asks an API server for everything that programs written in Go ask for
// with client-go, and prints a line for each step: what was done, and what
// came of it. Uids, versions and times are hidden, so that the lines of two
// servers that do the same are the same.
//
//	typed KUBECONFIG json|protobuf [PART...]
//
// A step that fails prints its error, and the next one follows.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long something may take that happens by itself.
const patience = 60 * time.Second

// world is what every part works with.
type world struct {
	*report
	ctx           context.Context
	namespace     string
	config        *rest.Config
	kubernetes    kubernetes.Interface
	apiextensions apiextensions.Interface
	dynamic       dynamic.Interface
	metadata      metadata.Interface
	discovery     discovery.DiscoveryInterface
}

// parts are what can be asked for by name, in the order in which they run.
var parts = []struct {
	name string
	run  func(*world)
}{
	{"builtin", builtInKinds},
	{"definitions", definitions},
	{"pods", pods},
	{"jobs", jobs},
	{"namespaces", namespaces},
	{"scale", scales},
	{"reviews", reviews},
	{"discovery", discover},
	{"metadata", metadataOnly},
	{"informers", informersSync},
	{"events", recordedEvents},
	{"leader", leaderElection},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("usage: typed KUBECONFIG json|protobuf [PART...]")
	}
	world, err := connect(arguments[0], arguments[1])
	if err != nil {
		return err
	}
	wanted := arguments[2:]
	if err := world.makeNamespace(); err != nil {
		return err
	}
	for _, part := range parts {
		if len(wanted) == 0 || slices.Contains(wanted, part.name) {
			part.run(world)
		}
	}
	return nil
}

func connect(kubeconfig, format string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	namespace := "typed-" + format
	report := newReport(namespace)
	// Nothing here is slowed down by the client.
	config.QPS = -1
	config.WarningHandler = report
	config.UserAgent = namespace
	// Custom resources and lists of metadata have no types of their own.
	plain := rest.CopyConfig(config)
	switch format {
	case "json":
		config.ContentType = runtime.ContentTypeJSON
	case "protobuf":
		// What controllers of Kubernetes are started with.
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	default:
		return nil, fmt.Errorf("%q is neither json nor protobuf", format)
	}
	world := &world{report: report, ctx: context.Background(), namespace: namespace, config: config}
	if world.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if world.apiextensions, err = apiextensions.NewForConfig(config); err != nil {
		return nil, err
	}
	if world.dynamic, err = dynamic.NewForConfig(plain); err != nil {
		return nil, err
	}
	if world.metadata, err = metadata.NewForConfig(plain); err != nil {
		return nil, err
	}
	world.discovery = world.kubernetes.Discovery()
	return world, nil
}
