package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	newevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// resources are those that programs look for by name.
var resources = map[string][]string{
	"v1": {
		"configmaps", "events", "namespaces", "namespaces/finalize", "namespaces/status", "nodes", "nodes/status",
		"pods", "pods/binding", "pods/eviction", "pods/log", "pods/status", "secrets", "serviceaccounts",
		"serviceaccounts/token", "services", "services/status",
	},
	"apps/v1": {
		"deployments", "deployments/scale", "deployments/status", "replicasets", "replicasets/scale", "replicasets/status",
	},
	"batch/v1":                 {"cronjobs", "cronjobs/status", "jobs", "jobs/status"},
	"coordination.k8s.io/v1":   {"leases"},
	"events.k8s.io/v1":         {"events"},
	"apiextensions.k8s.io/v1":  {"customresourcedefinitions", "customresourcedefinitions/status"},
	"authentication.k8s.io/v1": {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io/v1": {
		"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
	},
}

// discover asks what there is, in every form in which it is told.
func discover(w *world) {
	w.step("discovery: version", func() (any, error) {
		version, err := w.discovery.ServerVersion()
		if err != nil {
			return nil, err
		}
		return version.Major + "." + version.Minor, nil
	})
	legacy := discovery.NewDiscoveryClientForConfigOrDie(w.config)
	legacy.UseLegacyDiscovery = true
	forms := []struct {
		name   string
		client discovery.DiscoveryInterface
	}{{"aggregated", w.discovery}, {"legacy", legacy}}
	groupVersions := make([]string, 0, len(resources))
	for groupVersion := range resources {
		groupVersions = append(groupVersions, groupVersion)
	}
	sort.Strings(groupVersions)
	for _, form := range forms {
		_, lists, err := form.client.ServerGroupsAndResources()
		w.step("discovery: "+form.name, func() (any, error) { return nil, err })
		found := map[string]metav1.APIResource{}
		for _, list := range lists {
			for _, resource := range list.APIResources {
				// It differs between the forms whether these are told again.
				resource.Group, resource.Version, resource.StorageVersionHash = "", "", ""
				found[list.GroupVersion+" "+resource.Name] = resource
			}
		}
		for _, groupVersion := range groupVersions {
			for _, name := range resources[groupVersion] {
				w.step("discovery: "+form.name+" "+groupVersion+" "+name, func() (any, error) {
					resource, ok := found[groupVersion+" "+name]
					if !ok {
						return "is not there", nil
					}
					sort.Strings(resource.Verbs)
					sort.Strings(resource.ShortNames)
					return resource, nil
				})
			}
		}
		w.step("discovery: preferred "+form.name, func() (any, error) {
			lists, err := form.client.ServerPreferredResources()
			if err != nil {
				return nil, err
			}
			preferred := []string{}
			for _, list := range lists {
				for _, resource := range list.APIResources {
					for _, name := range resources[list.GroupVersion] {
						if name == resource.Name {
							preferred = append(preferred, list.GroupVersion+" "+name)
						}
					}
				}
			}
			sort.Strings(preferred)
			return preferred, nil
		})
	}
	w.step("discovery: of one version", func() (any, error) {
		list, err := w.discovery.ServerResourcesForGroupVersion("events.k8s.io/v1")
		if err != nil {
			return nil, err
		}
		for index := range list.APIResources {
			resource := &list.APIResources[index]
			resource.StorageVersionHash = ""
			sort.Strings(resource.Verbs)
		}
		return list, nil
	})
	w.step("discovery: of a version that is missing", func() (any, error) {
		return w.discovery.ServerResourcesForGroupVersion("missing.example.com/v1")
	})
	w.step("discovery: openapi v2", func() (any, error) {
		document, err := w.discovery.OpenAPISchema()
		if err != nil {
			return nil, err
		}
		for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
			if definition.GetName() == "io.k8s.api.core.v1.ConfigMap" {
				properties := []string{}
				for _, property := range definition.GetValue().GetProperties().GetAdditionalProperties() {
					properties = append(properties, property.GetName())
				}
				sort.Strings(properties)
				return properties, nil
			}
		}
		return "no ConfigMap", nil
	})
	for _, form := range []string{"application/json", openapi.ContentTypeOpenAPIV3PB} {
		w.step("discovery: openapi v3 "+form, func() (any, error) {
			paths, err := w.discovery.OpenAPIV3().Paths()
			if err != nil {
				return nil, err
			}
			known := []string{}
			for _, groupVersion := range groupVersions {
				path := "apis/" + groupVersion
				if !strings.Contains(groupVersion, "/") {
					path = "api/" + groupVersion
				}
				document, ok := paths[path]
				if !ok {
					continue
				}
				text, err := document.Schema(form)
				if err != nil {
					return nil, err
				}
				known = append(known, fmt.Sprint(path, " ", len(text) > 0))
			}
			return known, nil
		})
	}

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.discovery))
	for _, name := range []string{"pods", "deployments", "jobs", "events", "leases", "customresourcedefinitions", "missing"} {
		w.step("mapper: "+name, func() (any, error) {
			kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: name})
			return kind.String(), err
		})
	}
	w.step("mapper: a kind", func() (any, error) {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(mapping.Resource, " ", mapping.Scope.Name()), nil
	})
	short := restmapper.NewShortcutExpander(mapper, memory.NewMemCacheClient(w.discovery), func(string) {})
	// Not ev: which group of events comes first is chance.
	for _, name := range []string{"cm", "deploy", "crd", "ns", "sa"} {
		w.step("mapper: short "+name, func() (any, error) {
			resource, err := short.ResourceFor(schema.GroupVersionResource{Resource: name})
			return resource.String(), err
		})
	}
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// metadataOnly is how garbage collectors see objects.
func metadataOnly(w *world) {
	client := w.metadata.Resource(configMaps).Namespace(w.namespace)
	selected := metav1.ListOptions{LabelSelector: "test=metadata"}
	since := ""
	w.step("metadata: list before", func() (any, error) {
		list, err := client.List(w.ctx, selected)
		if err != nil {
			return nil, err
		}
		since = list.ResourceVersion
		return fmt.Sprint(len(list.Items)), nil
	})
	for _, name := range []string{"a", "b"} {
		w.step("metadata: create "+name, func() (any, error) {
			object := decode[corev1.ConfigMap](`{metadata: {labels: {test: metadata}}, data: {a: "1"}}`)
			object.Name = name
			_, err := w.kubernetes.CoreV1().ConfigMaps(w.namespace).Create(w.ctx, object, metav1.CreateOptions{})
			return nil, err
		})
	}
	w.step("metadata: get", func() (any, error) { return client.Get(w.ctx, "a", metav1.GetOptions{}) })
	w.step("metadata: get missing", func() (any, error) { return client.Get(w.ctx, "missing", metav1.GetOptions{}) })
	w.step("metadata: list", func() (any, error) { return client.List(w.ctx, selected) })
	w.step("metadata: patch", func() (any, error) {
		return client.Patch(w.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"more":"yes"}}}`), metav1.PatchOptions{})
	})
	w.step("metadata: delete", func() (any, error) {
		return done(client.Delete(w.ctx, "a", metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{},
			PropagationPolicy: background,
		}))
	})
	watching := func(name string, options metav1.ListOptions, last func(watch.Event) bool) {
		options.LabelSelector = selected.LabelSelector
		w.step(name, func() (any, error) {
			return events(w, client.Watch, options, last)
		})
	}
	watching("metadata: watch", metav1.ListOptions{ResourceVersion: since}, func(event watch.Event) bool {
		return event.Type == watch.Deleted
	})
	watching("metadata: watch from the start", metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	}, func(event watch.Event) bool { return event.Type == watch.Bookmark })
	w.step("metadata: delete collection", func() (any, error) {
		return done(client.DeleteCollection(w.ctx, metav1.DeleteOptions{
			PropagationPolicy: background,
		}, selected))
	})
	w.step("metadata: list after", func() (any, error) { return client.List(w.ctx, selected) })
}

// informersSync follow several kinds at once, as controllers do.
func informersSync(w *world) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	selected := func(options *metav1.ListOptions) { options.LabelSelector = "test=informers" }
	maps := w.kubernetes.CoreV1().ConfigMaps(w.namespace)
	create := func(name string) {
		w.step("informers: create "+name, func() (any, error) {
			object := decode[corev1.ConfigMap](`{metadata: {labels: {test: informers}}, data: {a: "1"}}`)
			object.Name = name
			_, err := maps.Create(w.ctx, object, metav1.CreateOptions{})
			return nil, err
		})
	}
	create("before")
	typed := informers.NewSharedInformerFactoryWithOptions(w.kubernetes, 0,
		informers.WithNamespace(w.namespace), informers.WithTweakListOptions(selected))
	everywhere := informers.NewSharedInformerFactory(w.kubernetes, 0)
	dynamic := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.dynamic, 0, w.namespace, selected)
	metadata := metadatainformer.NewFilteredSharedInformerFactory(w.metadata, 0, w.namespace, selected)
	followed := []struct {
		name     string
		informer cache.SharedIndexInformer
	}{
		{"typed", typed.Core().V1().ConfigMaps().Informer()},
		{"dynamic", dynamic.ForResource(configMaps).Informer()},
		{"metadata", metadata.ForResource(configMaps).Informer()},
	}
	others := []struct {
		name     string
		informer cache.SharedIndexInformer
	}{
		{"pods", everywhere.Core().V1().Pods().Informer()},
		{"services", everywhere.Core().V1().Services().Informer()},
		{"secrets", everywhere.Core().V1().Secrets().Informer()},
		{"nodes", everywhere.Core().V1().Nodes().Informer()},
		{"namespaces", everywhere.Core().V1().Namespaces().Informer()},
		{"service accounts", everywhere.Core().V1().ServiceAccounts().Informer()},
		{"deployments", everywhere.Apps().V1().Deployments().Informer()},
		{"replica sets", everywhere.Apps().V1().ReplicaSets().Informer()},
		{"jobs", everywhere.Batch().V1().Jobs().Informer()},
		{"cron jobs", everywhere.Batch().V1().CronJobs().Informer()},
		{"leases", everywhere.Coordination().V1().Leases().Informer()},
		{"events", everywhere.Core().V1().Events().Informer()},
		{"new events", everywhere.Events().V1().Events().Informer()},
	}
	typed.Start(ctx.Done())
	everywhere.Start(ctx.Done())
	dynamic.Start(ctx.Done())
	metadata.Start(ctx.Done())
	keys := func(informer cache.SharedIndexInformer) []string {
		keys := informer.GetStore().ListKeys()
		sort.Strings(keys)
		return keys
	}
	for _, one := range followed {
		w.step("informers: sync "+one.name, func() (any, error) {
			synced := cache.WaitForCacheSync(ctx.Done(), one.informer.HasSynced)
			return fmt.Sprint(synced, " ", keys(one.informer)), nil
		})
	}
	for _, one := range others {
		w.step("informers: sync "+one.name, func() (any, error) {
			return fmt.Sprint(cache.WaitForCacheSync(ctx.Done(), one.informer.HasSynced)), nil
		})
	}
	reach := func(what string, wanted ...string) {
		for _, one := range followed {
			w.step("informers: "+one.name+" sees "+what, func() (any, error) {
				return done(w.eventually(func() (bool, error) {
					return fmt.Sprint(keys(one.informer)) == fmt.Sprint(wanted), nil
				}))
			})
		}
	}
	create("after")
	reach("what is made", w.namespace+"/after", w.namespace+"/before")
	w.step("informers: the lister", func() (any, error) {
		return typed.Core().V1().ConfigMaps().Lister().ConfigMaps(w.namespace).Get("after")
	})
	w.step("informers: the lister by labels", func() (any, error) {
		found, err := typed.Core().V1().ConfigMaps().Lister().List(labels.SelectorFromSet(labels.Set{"test": "informers"}))
		names := namesOf(found)
		sort.Strings(names)
		return names, err
	})
	w.step("informers: delete", func() (any, error) { return done(maps.Delete(w.ctx, "before", metav1.DeleteOptions{})) })
	reach("what is deleted", w.namespace+"/after")
	w.step("informers: delete all", func() (any, error) {
		options := metav1.ListOptions{}
		selected(&options)
		return done(maps.DeleteCollection(w.ctx, metav1.DeleteOptions{}, options))
	})
	reach("that nothing is left")
}

// recordedEvents are those of the recorders of controllers, which count what
// happens again.
func recordedEvents(w *world) {
	client := w.kubernetes.CoreV1().Events(w.namespace)
	account := &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: w.namespace, Name: "seen", UID: "seen"}
	old := record.NewBroadcaster()
	defer old.Shutdown()
	old.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: w.kubernetes.CoreV1().Events("")})
	recorder := old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "typed"})
	for range 3 {
		recorder.Event(account, corev1.EventTypeWarning, "Seen", "it was seen")
	}
	selected := metav1.ListOptions{FieldSelector: "involvedObject.name=seen,reason=Seen,type=Warning"}
	w.step("events: counted", func() (any, error) {
		count := int32(0)
		err := w.eventually(func() (bool, error) {
			list, err := client.List(w.ctx, selected)
			if err == nil && len(list.Items) == 1 {
				count = list.Items[0].Count
			}
			return count == 3, err
		})
		return fmt.Sprint(count), err
	})
	recent := newevents.NewBroadcaster(&newevents.EventSinkImpl{Interface: w.kubernetes.EventsV1()})
	defer recent.Shutdown()
	if err := recent.StartRecordingToSinkWithContext(w.ctx); err != nil {
		w.step("events: recording", func() (any, error) { return nil, err })
		return
	}
	newRecorder := recent.NewRecorder(scheme.Scheme, "example.com/typed")
	newRecorder.Eventf(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "noted", UID: "noted"},
	}, nil, corev1.EventTypeNormal, "Noted", "Note", "it was %s", "noted")
	w.step("events: noted", func() (any, error) {
		note := ""
		err := w.eventually(func() (bool, error) {
			list, err := w.kubernetes.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{
				FieldSelector: "regarding.name=noted",
			})
			if err == nil && len(list.Items) == 1 {
				note = list.Items[0].Note
			}
			return note != "", err
		})
		return note, err
	})
	w.step("events: noted in the old group", func() (any, error) {
		list, err := client.List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=noted"})
		if err != nil || len(list.Items) != 1 {
			return nil, fmt.Errorf("not one: %v", err)
		}
		event := list.Items[0]
		return []string{event.Reason, event.Message, event.Action, event.ReportingController}, nil
	})
	w.step("events: delete all", func() (any, error) {
		return done(client.DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// leaderElection lets two candidates lead, one after the other.
func leaderElection(w *world) {
	lead := func(name string) {
		w.step("leader: "+name, func() (any, error) {
			ctx, cancel := context.WithTimeout(w.ctx, patience)
			defer cancel()
			lock, err := resourcelock.New(resourcelock.LeasesResourceLock, w.namespace, "leader",
				w.kubernetes.CoreV1(), w.kubernetes.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
			if err != nil {
				return nil, err
			}
			leases := w.kubernetes.CoordinationV1().Leases(w.namespace)
			var lease coordinationv1.LeaseSpec
			var failed error
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock:            lock,
				LeaseDuration:   patience,
				RenewDeadline:   patience - 10*time.Second,
				RetryPeriod:     5 * time.Second,
				ReleaseOnCancel: true,
				Name:            name,
				Callbacks: leaderelection.LeaderCallbacks{
					// What is given up while it is being renewed is not always released.
					OnStartedLeading: func(context.Context) {
						failed = w.eventually(func() (bool, error) {
							found, err := leases.Get(w.ctx, "leader", metav1.GetOptions{})
							if err != nil {
								return false, err
							}
							lease = found.Spec
							return lease.RenewTime.After(lease.AcquireTime.Time), nil
						})
						cancel()
					},
					OnStoppedLeading: func() {},
				},
			})
			return lease, failed
		})
	}
	lead("first")
	lead("second")
	w.step("leader: delete", func() (any, error) {
		return done(w.kubernetes.CoordinationV1().Leases(w.namespace).Delete(w.ctx, "leader", metav1.DeleteOptions{}))
	})
}
