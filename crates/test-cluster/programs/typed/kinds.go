package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	corev1 "k8s.io/api/core/v1"
)

func (w *world) makeNamespace() error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	_, err := w.kubernetes.CoreV1().Namespaces().Create(w.ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

const podTemplate = `
    metadata: {labels: {app: a}}
    spec:
      restartPolicy: %s
      containers: [{name: main, image: "image:1", env: [{name: A, value: "1"}]}]
`

// builtInKinds are the kinds of Kubernetes that most programs use.
func builtInKinds(w *world) {
	core, apps, batch := w.kubernetes.CoreV1(), w.kubernetes.AppsV1(), w.kubernetes.BatchV1()
	namespace := w.namespace

	everyVerb(w, configMap(namespace), core.ConfigMaps(namespace))
	dynamicMap := configMap(namespace)
	dynamicMap.name = "dynamic-config-map"
	dynamicMap.object = "{apiVersion: v1, kind: ConfigMap, data: {a: \"1\"}}"
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	everyVerb(w, dynamicMap, plain{w.dynamic.Resource(maps).Namespace(namespace)})

	everyVerb(w, kind{
		name:      "secret",
		namespace: namespace,
		object:    `{type: Opaque, data: {a: YQ==}}`,
		change:    `{data: {b: Yg==}}`,
		patch:     `{stringData: {c: plain}}`,
		invalid:   `{data: {"not a key": YQ==}}`,
	}, core.Secrets(namespace))

	everyVerb(w, kind{
		name:      "service",
		upsert:    true,
		namespace: namespace,
		object:    `{spec: {selector: {app: a}, ports: [{name: http, port: 80, targetPort: web}]}}`,
		change:    `{spec: {selector: {app: b}}}`,
		patch:     `{spec: {sessionAffinity: ClientIP}}`,
		strategic: `{"spec":{"ports":[{"port":81,"name":"more"}]}}`,
		status:    `{status: {conditions: [{type: Seen, status: "True", reason: Seen, message: "", lastTransitionTime: "2030-01-01T00:00:00Z"}]}}`,
		invalid:   `{spec: {ports: [{port: 0}]}}`,
	}, core.Services(namespace))

	everyVerb(w, kind{
		name:      "service-account",
		namespace: namespace,
		object:    `{imagePullSecrets: [{name: a}]}`,
		change:    `{automountServiceAccountToken: false}`,
		patch:     `{imagePullSecrets: [{name: b}]}`,
		strategic: `{"imagePullSecrets":[{"name":"c"}]}`,
	}, core.ServiceAccounts(namespace))

	everyVerb(w, kind{
		name: "node",
		nameOf: func(name string) string {
			return name + "." + namespace
		},
		object:    `{spec: {podCIDR: 10.1.0.0/24}}`,
		change:    `{spec: {unschedulable: true}}`,
		patch:     `{spec: {taints: [{key: a, effect: NoSchedule}]}}`,
		strategic: `{"spec":{"taints":[{"key":"b","effect":"NoExecute"}]}}`,
		status:    `{status: {capacity: {cpu: "4", memory: 8Gi}, addresses: [{type: Hostname, address: a}], conditions: [{type: Ready, status: "True"}]}}`,
		invalid:   `{spec: {taints: [{key: "", effect: Never}]}}`,
	}, core.Nodes())

	everyVerb(w, kind{
		name:      "pod",
		namespace: namespace,
		object: `
spec:
  containers:
  - {name: main, image: "image:1", ports: [{containerPort: 80}], resources: {limits: {cpu: 500m, memory: 1Gi}}}
  volumes: [{name: empty, emptyDir: {}}]
`,
		change:    `{spec: {activeDeadlineSeconds: 60}}`,
		patch:     `{metadata: {annotations: {a: b}}}`,
		strategic: `{"spec":{"containers":[{"name":"main","image":"image:2"}]}}`,
		status: `
status:
  phase: Running
  podIP: 192.0.2.1
  podIPs: [{ip: 192.0.2.1}]
  conditions: [{type: Ready, status: "True", lastTransitionTime: "2030-01-01T00:00:00Z"}]
  containerStatuses: [{name: main, image: "image:1", imageID: a, ready: true, restartCount: 0, state: {running: {startedAt: "2030-01-01T00:00:00Z"}}}]
`,
		invalid: `{spec: {containers: []}}`,
	}, core.Pods(namespace))

	template := func(restart string) string { return replace(podTemplate, "%s", restart) }
	everyVerb(w, kind{
		name:      "deployment",
		namespace: namespace,
		object:    "spec:\n  replicas: 2\n  selector: {matchLabels: {app: a}}\n  template:" + template("Always"),
		change:    `{spec: {replicas: 3}}`,
		patch:     `{spec: {paused: true}}`,
		strategic: `{"spec":{"template":{"spec":{"containers":[{"name":"more","image":"image:2"}]}}}}`,
		status:    `{status: {observedGeneration: 1, replicas: 2, conditions: [{type: Available, status: "True", reason: A, message: b, lastUpdateTime: "2030-01-01T00:00:00Z", lastTransitionTime: "2030-01-01T00:00:00Z"}]}}`,
		invalid:   `{spec: {selector: {matchLabels: {app: other}}}}`,
	}, apps.Deployments(namespace))

	everyVerb(w, kind{
		name:      "replica-set",
		namespace: namespace,
		object:    "spec:\n  selector: {matchLabels: {app: a}}\n  template:" + template("Always"),
		change:    `{spec: {minReadySeconds: 5}}`,
		patch:     `{spec: {replicas: 2}}`,
		strategic: `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"image:3"}]}}}}`,
		status:    `{status: {replicas: 1, readyReplicas: 1, observedGeneration: 1}}`,
		invalid:   `{spec: {replicas: -1}}`,
	}, apps.ReplicaSets(namespace))

	everyVerb(w, kind{
		name:      "job",
		namespace: namespace,
		object:    "spec:\n  backoffLimit: 2\n  template:" + template("Never"),
		change:    `{spec: {parallelism: 3}}`,
		patch:     `{spec: {suspend: true}}`,
		strategic: `{"spec":{"activeDeadlineSeconds":60}}`,
		status:    `{status: {active: 1, startTime: "2030-01-01T00:00:00Z"}}`,
		invalid:   `{spec: {completions: -1}}`,
	}, batch.Jobs(namespace))

	everyVerb(w, kind{
		name:      "cron-job",
		namespace: namespace,
		object:    "spec:\n  schedule: \"*/5 * * * *\"\n  jobTemplate:\n   spec:\n    template:" + indent(template("Never")),
		change:    `{spec: {suspend: true}}`,
		patch:     `{spec: {schedule: "@hourly"}}`,
		strategic: `{"spec":{"concurrencyPolicy":"Forbid"}}`,
		status:    `{status: {lastScheduleTime: "2030-01-01T00:00:00Z"}}`,
		invalid:   `{spec: {schedule: sometimes}}`,
	}, batch.CronJobs(namespace))

	everyVerb(w, kind{
		name:      "lease",
		upsert:    true,
		namespace: namespace,
		object:    `{spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: "2030-01-01T00:00:00.123456Z"}}`,
		change:    `{spec: {holderIdentity: b, renewTime: "2030-01-01T00:00:01.000000Z"}}`,
		patch:     `{spec: {leaseTransitions: 1}}`,
		invalid:   `{spec: {leaseDurationSeconds: -1}}`,
	}, w.kubernetes.CoordinationV1().Leases(namespace))

	everyVerb(w, kind{
		name:      "event",
		upsert:    true,
		namespace: namespace,
		object: `
involvedObject: {kind: Pod, namespace: ` + namespace + `, name: a}
reason: Started
message: it has started
type: Normal
source: {component: typed}
firstTimestamp: "2030-01-01T00:00:00Z"
lastTimestamp: "2030-01-01T00:00:00Z"
count: 1
`,
		change: `{count: 2}`,
		patch:  `{count: 3, lastTimestamp: "2030-01-01T00:00:09Z"}`,
	}, core.Events(namespace))

	everyVerb(w, kind{
		name:      "new-event",
		upsert:    true,
		namespace: namespace,
		object: `
eventTime: "2030-01-01T00:00:00.000000Z"
reportingController: example.com/typed
reportingInstance: typed-1
action: Start
reason: Started
type: Normal
regarding: {kind: Pod, namespace: ` + namespace + `, name: a}
note: it has started
`,
		change:  `{series: {count: 2, lastObservedTime: "2030-01-01T00:00:01.000000Z"}}`,
		patch:   `{series: {count: 3, lastObservedTime: "2030-01-01T00:00:02.000000Z"}}`,
		invalid: `{type: Strange}`,
	}, w.kubernetes.EventsV1().Events(namespace))
}

func configMap(namespace string) kind {
	return kind{
		name:      "config-map",
		namespace: namespace,
		object:    `{data: {a: "1"}, binaryData: {b: AAEC}}`,
		change:    `{data: {a: "2", c: "3"}}`,
		patch:     `{data: {a: null, d: "4"}}`,
		jsonPatch: `[{"op":"replace","path":"/data/d","value":"5"},{"op":"copy","from":"/data/d","path":"/data/e"}]`,
		strategic: `{"data":{"e":null,"f":"6"}}`,
		invalid:   `{data: {"not a key": "1"}}`,
	}
}

// plain is a dynamic client of one resource without its subresources.
type plain struct{ dynamic.ResourceInterface }

func (p plain) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions) (*unstructured.Unstructured, error) {
	return p.ResourceInterface.Create(ctx, object, options)
}

func (p plain) Update(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return p.ResourceInterface.Update(ctx, object, options)
}

func (p plain) Get(ctx context.Context, name string, options metav1.GetOptions) (*unstructured.Unstructured, error) {
	return p.ResourceInterface.Get(ctx, name, options)
}

func (p plain) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	return p.ResourceInterface.Delete(ctx, name, options)
}
