package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func patchType(form string) types.PatchType { return types.PatchType(form) }

func mustObject(text string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		panic(err)
	}
	return object
}

// decode reads an object of this program.
func decode[T any](text string) *T {
	object := new(T)
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		panic(err)
	}
	return object
}

// pods are more than objects: they are bound, evicted, and end when their
// grace is over.
func pods(w *world) {
	client := w.kubernetes.CoreV1().Pods(w.namespace)
	create := func(name, node string) {
		w.step("pods: create "+name, func() (any, error) {
			pod := decode[corev1.Pod](`spec: {terminationGracePeriodSeconds: 3600, containers: [{name: main, image: "image:1"}]}`)
			pod.Name, pod.Spec.NodeName = name, node
			return client.Create(w.ctx, pod, metav1.CreateOptions{})
		})
	}
	create("running", "meadow")
	w.step("pods: delete with grace", func() (any, error) {
		return done(client.Delete(w.ctx, "running", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](600)}))
	})
	w.step("pods: get what has grace left", func() (any, error) {
		return client.Get(w.ctx, "running", metav1.GetOptions{})
	})
	w.step("pods: list what is on the node", func() (any, error) {
		return client.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=meadow,status.phase!=Failed"})
	})
	w.step("pods: delete at once", func() (any, error) {
		return done(client.Delete(w.ctx, "running", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	})
	w.step("pods: get what was deleted at once", func() (any, error) {
		return client.Get(w.ctx, "running", metav1.GetOptions{})
	})

	create("waiting", "")
	w.step("pods: bind", func() (any, error) {
		return done(client.Bind(w.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "waiting"},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "meadow"},
		}, metav1.CreateOptions{}))
	})
	w.step("pods: get ephemeral containers", func() (any, error) {
		pod, err := client.Get(w.ctx, "waiting", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "image:1"},
		}}
		return client.UpdateEphemeralContainers(w.ctx, "waiting", pod, metav1.UpdateOptions{})
	})
	w.step("pods: resize", func() (any, error) {
		pod, err := client.Get(w.ctx, "waiting", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return client.UpdateResize(w.ctx, "waiting", pod, metav1.UpdateOptions{})
	})
	w.step("pods: logs", func() (any, error) {
		_, err := client.GetLogs("waiting", &corev1.PodLogOptions{}).DoRaw(w.ctx)
		return nil, err
	})
	create("evicted", "")
	eviction := func(name string) *policyv1.Eviction {
		return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	}
	w.step("pods: evict", func() (any, error) { return done(client.EvictV1(w.ctx, eviction("evicted"))) })
	w.step("pods: evict missing", func() (any, error) { return done(client.EvictV1(w.ctx, eviction("missing"))) })
	w.step("pods: delete all", func() (any, error) {
		return done(client.DeleteCollection(w.ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{}))
	})
	w.step("pods: create a token", func() (any, error) {
		accounts := w.kubernetes.CoreV1().ServiceAccounts(w.namespace)
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "tokens"}}
		if _, err := accounts.Create(w.ctx, account, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		token, err := accounts.CreateToken(w.ctx, "tokens", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return fmt.Sprint("a token: ", token.Status.Token != ""), nil
	})
}

// jobs leave their Pods behind, unless a deletion says what becomes of them.
func jobs(w *world) {
	client := w.kubernetes.BatchV1().Jobs(w.namespace)
	w.step("jobs: create", func() (any, error) {
		job := decode[batchv1.Job]("spec:\n  template:" + replace(podTemplate, "%s", "Never"))
		job.Name = "left"
		_, err := client.Create(w.ctx, job, metav1.CreateOptions{})
		return nil, err
	})
	w.step("jobs: delete without a policy", func() (any, error) {
		return done(client.Delete(w.ctx, "left", metav1.DeleteOptions{}))
	})
	w.step("jobs: get after delete without a policy", func() (any, error) {
		return client.Get(w.ctx, "left", metav1.GetOptions{})
	})
	w.step("jobs: end of delete without a policy", func() (any, error) {
		_, err := client.Patch(w.ctx, "left", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return nil, err
	})
}

// namespaces are not deleted as a collection, and end in their own time.
func namespaces(w *world) {
	client := w.kubernetes.CoreV1().Namespaces()
	everyVerb(w, kind{
		name:   "namespace",
		object: `{}`,
		nameOf: func(name string) string { return w.namespace + "-" + name },
		change: `{metadata: {annotations: {a: b}}}`,
		patch:  `{metadata: {annotations: {a: c}}}`,
		status: `{status: {conditions: [{type: Seen, status: "True"}]}}`,
		remain: true,
	}, client)
	name := w.namespace + "-last"
	w.step("namespace: finalize", func() (any, error) {
		namespace, err := client.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return client.Finalize(w.ctx, namespace, metav1.UpdateOptions{})
	})
	w.step("namespace: delete another uid", func() (any, error) {
		return done(client.Delete(w.ctx, name, *metav1.NewPreconditionDeleteOptions("11111111-2222-3333-4444-555555555555")))
	})
	w.step("namespace: delete", func() (any, error) { return done(client.Delete(w.ctx, name, metav1.DeleteOptions{})) })
	w.step("namespace: create in a namespace that is missing", func() (any, error) {
		return w.kubernetes.CoreV1().ConfigMaps("missing").Create(w.ctx, decode[corev1.ConfigMap](`metadata: {name: a}`), metav1.CreateOptions{})
	})
}

// scales are written by their own typed calls, and by the client of all scales.
func scales(w *world) {
	apps := w.kubernetes.AppsV1()
	spec := "spec:\n  replicas: 2\n  selector: {matchLabels: {app: a}}\n  template:" + replace(podTemplate, "%s", "Always")
	deployment := decode[appsv1.Deployment](spec)
	deployment.Name = "scaled"
	set := decode[appsv1.ReplicaSet](spec)
	set.Name = "scaled"
	w.step("scale: create", func() (any, error) {
		if _, err := apps.Deployments(w.namespace).Create(w.ctx, deployment, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		_, err := apps.ReplicaSets(w.namespace).Create(w.ctx, set, metav1.CreateOptions{})
		return nil, err
	})
	scaling := func(
		name string,
		get func() (*autoscalingv1.Scale, error),
		update func(*autoscalingv1.Scale, metav1.UpdateOptions) (*autoscalingv1.Scale, error),
	) {
		old := &autoscalingv1.Scale{}
		w.step("scale: get "+name, func() (any, error) {
			found, err := get()
			if err == nil {
				old = found.DeepCopy()
			}
			return found, err
		})
		updating := func(what string, replicas int32, version string, options metav1.UpdateOptions) {
			w.step("scale: update "+name+what, func() (any, error) {
				scale := old.DeepCopy()
				scale.Spec.Replicas, scale.ResourceVersion = replicas, version
				return update(scale, options)
			})
		}
		updating(" dry", 4, old.ResourceVersion, metav1.UpdateOptions{DryRun: dryRun})
		updating("", 5, old.ResourceVersion, metav1.UpdateOptions{})
		updating(" of an old version", 6, old.ResourceVersion, metav1.UpdateOptions{})
		updating(" of any version", 7, "", metav1.UpdateOptions{})
		updating(" below nothing", -1, "", metav1.UpdateOptions{})
	}
	deployments, sets := apps.Deployments(w.namespace), apps.ReplicaSets(w.namespace)
	scaling("deployment",
		func() (*autoscalingv1.Scale, error) {
			return deployments.GetScale(w.ctx, "scaled", metav1.GetOptions{})
		},
		func(scale *autoscalingv1.Scale, options metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
			return deployments.UpdateScale(w.ctx, "scaled", scale, options)
		})
	scaling("replica set",
		func() (*autoscalingv1.Scale, error) { return sets.GetScale(w.ctx, "scaled", metav1.GetOptions{}) },
		func(scale *autoscalingv1.Scale, options metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
			return sets.UpdateScale(w.ctx, "scaled", scale, options)
		})
	w.step("scale: get missing", func() (any, error) { return deployments.GetScale(w.ctx, "missing", metav1.GetOptions{}) })
	w.step("scale: the deployment", func() (any, error) { return deployments.Get(w.ctx, "scaled", metav1.GetOptions{}) })

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.discovery))
	all, err := scale.NewForConfig(w.config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(w.discovery))
	if err != nil {
		w.step("scale: all of them", func() (any, error) { return nil, err })
		return
	}
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	w.step("scale: get of all", func() (any, error) {
		return all.Scales(w.namespace).Get(w.ctx, resource, "scaled", metav1.GetOptions{})
	})
	w.step("scale: update of all", func() (any, error) {
		scale, err := all.Scales(w.namespace).Get(w.ctx, resource, "scaled", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		scale.Spec.Replicas = 8
		return all.Scales(w.namespace).Update(w.ctx, resource, scale, metav1.UpdateOptions{})
	})
	w.step("scale: patch of all", func() (any, error) {
		return all.Scales(w.namespace).Patch(w.ctx, resource.WithVersion("v1"), "scaled", types.MergePatchType,
			[]byte(`{"spec":{"replicas":9}}`), metav1.PatchOptions{})
	})
	for _, name := range []string{"deployment", "replica set"} {
		w.step("scale: delete "+name, func() (any, error) {
			if name == "deployment" {
				return done(deployments.Delete(w.ctx, "scaled", metav1.DeleteOptions{}))
			}
			return done(sets.Delete(w.ctx, "scaled", metav1.DeleteOptions{}))
		})
	}
}

// reviews are questions about callers and rights.
func reviews(w *world) {
	rights := w.kubernetes.AuthorizationV1()
	none := metav1.CreateOptions{}
	on := &authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "delete", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "a"}
	path := &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"}
	w.step("reviews: may I", func() (any, error) {
		return rights.SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: on}}, none)
	})
	w.step("reviews: may I get a path", func() (any, error) {
		return rights.SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: path}}, none)
	})
	w.step("reviews: may I what", func() (any, error) {
		return rights.SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{}, none)
	})
	w.step("reviews: may an administrator", func() (any, error) {
		return rights.SubjectAccessReviews().Create(w.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "jane", Groups: []string{"system:masters"}, UID: "7", ResourceAttributes: on,
				Extra: map[string]authorizationv1.ExtraValue{"example.com/a": {"b"}},
			}}, none)
	})
	w.step("reviews: may jane", func() (any, error) {
		answer, err := rights.SubjectAccessReviews().Create(w.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: on}}, none)
		if err != nil {
			return nil, err
		}
		return fmt.Sprint("allowed: ", answer.Status.Allowed, ", denied: ", answer.Status.Denied), nil
	})
	w.step("reviews: may jane here", func() (any, error) {
		answer, err := rights.LocalSubjectAccessReviews(w.namespace).Create(w.ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace},
			Spec:       authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: on}}, none)
		if err != nil {
			return nil, err
		}
		return fmt.Sprint("allowed: ", answer.Status.Allowed), nil
	})
	w.step("reviews: what may I", func() (any, error) {
		answer, err := rights.SelfSubjectRulesReviews().Create(w.ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: w.namespace}}, none)
		if err != nil {
			return nil, err
		}
		everything := false
		for _, rule := range answer.Status.ResourceRules {
			everything = everything || (rule.Verbs[0] == "*" && rule.Resources[0] == "*")
		}
		return fmt.Sprint("everything: ", everything), nil
	})
	w.step("reviews: who is this", func() (any, error) {
		return w.kubernetes.AuthenticationV1().TokenReviews().Create(w.ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: "unknown"}}, none)
	})
	w.step("reviews: who am I", func() (any, error) {
		answer, err := w.kubernetes.AuthenticationV1().SelfSubjectReviews().Create(w.ctx, &authenticationv1.SelfSubjectReview{}, none)
		if err != nil {
			return nil, err
		}
		return answer.Status.UserInfo.Groups, nil
	})
}
