// Asks an API server for what programs in JavaScript ask for, with the official
// client, and prints what came of each step, a line each, without what differs
// by chance: steps.mjs KUBECONFIG, with $NODE_MODULES where the client is.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as later } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const require = createRequire(join(process.env.NODE_MODULES, 'steps.js'));
const k8s = await import(pathToFileURL(require.resolve('@kubernetes/client-node')));

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const namespace = 'javascript';
const group = 'javascript.example.com';
/** How long something may take that happens by itself. */
const patience = 60_000;

const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const batch = config.makeApiClient(k8s.BatchV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
const rights = config.makeApiClient(k8s.AuthorizationV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

/** The value without what is another one each time. */
function normal(value) {
  if (Array.isArray(value)) return value.map(normal);
  if (value instanceof Date) return 'TIME';
  if (value === null || typeof value !== 'object') return value;
  const hidden = { resourceVersion: 'VERSION', uid: 'UID', _continue: 'CONTINUE', continue: 'CONTINUE', clusterIP: 'ADDRESS', clusterIPs: 'ADDRESSES' };
  const members = Object.entries(value)
    .filter(([name, member]) => member !== undefined && name !== 'managedFields')
    // What an item of a list says about its own type is up to the server.
    .map(([name, member]) => [name, name === 'items' && Array.isArray(member) ? member.map(({ kind, apiVersion, ...rest }) => rest) : member])
    .map(([name, member]) => [name, name in hidden && member && member !== 'None' ? hidden[name] : normal(member)]);
  return Object.fromEntries(members.sort(([one], [other]) => (one < other ? -1 : 1)));
}

function hide(line) {
  return line
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UID')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, 'TIME')
    .replaceAll(/(in record )\(\d+\)/g, '$1(VERSION)')
    .replaceAll('\n', '\\n');
}

function said(error) {
  if (!(error instanceof k8s.ApiException)) return `error: ${error.message}`;
  let body = error.body;
  try {
    body = typeof body === 'string' ? JSON.parse(body) : body;
  } catch {
    // It is text, and stays so.
  }
  return `error ${error.code} ${JSON.stringify(normal(body))}`;
}

async function step(name, what) {
  let line;
  try {
    line = JSON.stringify(normal((await what()) ?? 'done'));
  } catch (error) {
    line = said(error);
  }
  console.log(hide(`${name}: ${line}`));
}

async function eventually(ask) {
  const deadline = Date.now() + patience;
  for (;;) {
    const answer = await ask().catch(() => undefined);
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error('it does not happen');
    await later(20);
  }
}

const as = (type) => k8s.setHeaderOptions('Content-Type', type);
const { JsonPatch, MergePatch, StrategicMergePatch } = k8s.PatchStrategy;

await core.createNamespace({ body: { metadata: { name: namespace } } });

async function configMaps() {
  const labels = { test: 'maps' };
  const selected = { namespace, labelSelector: 'test=maps' };
  const map = (name, data = { a: '1' }) => ({ metadata: { name, labels }, data });
  const of = (name) => ({ name, namespace });
  const maps = (name, what) => step(`config-map: ${name}`, what);
  await maps('create dry', () => core.createNamespacedConfigMap({ namespace, body: map('a'), dryRun: 'All' }));
  for (const name of ['a', 'b', 'c']) {
    await maps(`create ${name}`, () => core.createNamespacedConfigMap({ namespace, body: map(name), fieldValidation: 'Strict' }));
  }
  await maps('create again', () => core.createNamespacedConfigMap({ namespace, body: map('a') }));
  await maps('create invalid', () => core.createNamespacedConfigMap({ namespace, body: map('Not a name') }));
  await maps('read', () => core.readNamespacedConfigMap(of('a')));
  await maps('read missing', () => core.readNamespacedConfigMap(of('missing')));
  await maps('list', () => core.listNamespacedConfigMap(selected));
  await maps('list everywhere', () => core.listConfigMapForAllNamespaces({ labelSelector: 'test=maps', fieldSelector: 'metadata.name=b' }));
  await maps('list in pages', async () => {
    const pages = [];
    let _continue;
    do {
      const page = await core.listNamespacedConfigMap({ ...selected, limit: 2, _continue });
      pages.push(page.items.map((item) => item.metadata.name));
      _continue = page.metadata._continue;
    } while (_continue);
    return pages;
  });
  const old = await core.readNamespacedConfigMap(of('a'));
  await maps('replace', () => core.replaceNamespacedConfigMap({ ...of('a'), body: { ...old, data: { b: '2' } } }));
  await maps('replace of an old version', () => core.replaceNamespacedConfigMap({ ...of('a'), body: old }));
  await maps('patch without a type', () => core.patchNamespacedConfigMap({ ...of('a'), body: [{ op: 'add', path: '/data/c', value: '3' }] }));
  await maps('patch json', () => core.patchNamespacedConfigMap({ ...of('a'), body: [{ op: 'test', path: '/data/c', value: '3' }] }, as(JsonPatch)));
  await maps('patch merge', () => core.patchNamespacedConfigMap({ ...of('a'), body: { data: { b: null, d: '4' } } }, as(MergePatch)));
  await maps('patch strategic', () => core.patchNamespacedConfigMap({ ...of('a'), body: { data: { e: '5' } } }, as(StrategicMergePatch)));
  await maps('delete another version', () =>
    core.deleteNamespacedConfigMap({ ...of('b'), body: { preconditions: { resourceVersion: '1' } } }));
  await maps('delete with a body', () =>
    core.deleteNamespacedConfigMap({ ...of('b'), body: { apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: 'Background' } }));
  await maps('delete with a query', () =>
    core.deleteNamespacedConfigMap({ ...of('c'), gracePeriodSeconds: 0, propagationPolicy: 'Foreground' }));
  await maps('read what is deleted in the foreground', () => core.readNamespacedConfigMap(of('c')));
  await maps('let it go', () => core.patchNamespacedConfigMap({ ...of('c'), body: { metadata: { finalizers: null } } }, as(MergePatch)));
  await maps('delete missing', () => core.deleteNamespacedConfigMap(of('missing')));
  await maps('delete collection', () => core.deleteCollectionNamespacedConfigMap({ ...selected, body: { propagationPolicy: 'Background' } }));
  await maps('list after', () => core.listNamespacedConfigMap(selected));
}

const template = (restartPolicy) => ({
  metadata: { labels: { app: 'a' } },
  spec: { restartPolicy, containers: [{ name: 'main', image: 'image:1' }] },
});

async function workloads() {
  const of = (name) => ({ name, namespace });
  await step('pod: create', () =>
    core.createNamespacedPod({ namespace, body: { metadata: { name: 'a' }, spec: { nodeName: 'meadow', containers: [{ name: 'main', image: 'image:1' }] } } }));
  await step('pod: replace status', async () => {
    const pod = await core.readNamespacedPod(of('a'));
    pod.status = { ...pod.status, phase: 'Running', startTime: new Date(0) };
    return core.replaceNamespacedPodStatus({ ...of('a'), body: pod });
  });
  await step('pod: patch status', () => core.patchNamespacedPodStatus({ ...of('a'), body: { status: { podIP: '192.0.2.1' } } }, as(StrategicMergePatch)));
  await step('pod: list by a field', () => core.listNamespacedPod({ namespace, fieldSelector: 'spec.nodeName=meadow,status.phase=Running' }));
  await step('pod: evict', () => core.createNamespacedPodEviction({ ...of('a'), body: { metadata: of('a') } }));
  await step('pod: delete', async () => {
    // The Pod may have been evicted.
    const pod = await core.deleteNamespacedPod({ ...of('a'), body: { gracePeriodSeconds: 0 } }).catch(() => undefined);
    return pod && 'deleted';
  });
  const body = { metadata: { name: 'a' }, spec: { replicas: 2, selector: { matchLabels: { app: 'a' } }, template: template('Always') } };
  await step('deployment: create', () => apps.createNamespacedDeployment({ namespace, body }));
  await step('deployment: read scale', () => apps.readNamespacedDeploymentScale(of('a')));
  await step('deployment: replace scale', async () => {
    const scale = await apps.readNamespacedDeploymentScale(of('a'));
    scale.spec.replicas = 3;
    return apps.replaceNamespacedDeploymentScale({ ...of('a'), body: scale });
  });
  await step('deployment: patch scale', () => apps.patchNamespacedDeploymentScale({ ...of('a'), body: { spec: { replicas: 4 } } }, as(MergePatch)));
  await step('deployment: patch strategic', () =>
    apps.patchNamespacedDeployment({ ...of('a'), body: { spec: { template: { spec: { containers: [{ name: 'more', image: 'image:2' }] } } } } }, as(StrategicMergePatch)));
  await step('deployment: delete', () => apps.deleteNamespacedDeployment({ ...of('a'), body: { propagationPolicy: 'Background' } }));
  await step('job: create', () => batch.createNamespacedJob({ namespace, body: { metadata: { name: 'a' }, spec: { template: template('Never') } } }));
  await step('job: delete', () => batch.deleteNamespacedJob({ ...of('a'), propagationPolicy: 'Background' }));
  await step('secret: create', () => core.createNamespacedSecret({ namespace, body: { metadata: { name: 'a' }, stringData: { a: 'b' } } }));
  await step('service: create', () => core.createNamespacedService({ namespace, body: { metadata: { name: 'a' }, spec: { ports: [{ port: 80 }] } } }));
  await step('event: create', () =>
    core.createNamespacedEvent({ namespace, body: { metadata: { name: 'a' }, involvedObject: { kind: 'Pod', name: 'a', namespace }, reason: 'Seen', lastTimestamp: new Date(0) } }));
  await step('rights: may I', () =>
    rights.createSelfSubjectAccessReview({ body: { spec: { resourceAttributes: { verb: 'get', resource: 'pods', namespace } } } }));
}

async function customObjects() {
  const anything = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const spec = { type: 'object', properties: { size: { type: 'integer', maximum: 9 }, tags: { type: 'array', items: { type: 'string' } }, anything } };
  const version = { name: 'v1', served: true, storage: true, subresources: { status: {} }, schema: { openAPIV3Schema: { type: 'object', properties: { spec, status: anything } } } };
  const name = `owls.${group}`;
  await step('definition: create', async () => {
    const made = await definitions.createCustomResourceDefinition({
      body: { metadata: { name }, spec: { group, scope: 'Namespaced', names: { plural: 'owls', kind: 'Owl' }, versions: [version] } },
    });
    return made.spec;
  });
  const of = { group, version: 'v1', namespace, plural: 'owls' };
  await step('custom: is served', async () => {
    await eventually(() => custom.listNamespacedCustomObject(of));
  });
  const owl = (name, size) => ({ apiVersion: `${group}/v1`, kind: 'Owl', metadata: { name }, spec: { size, tags: ['a'] } });
  await step('custom: create', () => custom.createNamespacedCustomObject({ ...of, body: owl('a', 1) }));
  await step('custom: create invalid', () => custom.createNamespacedCustomObject({ ...of, body: owl('b', 10) }));
  await step('custom: get', () => custom.getNamespacedCustomObject({ ...of, name: 'a' }));
  await step('custom: list', () => custom.listClusterCustomObject({ group, version: 'v1', plural: 'owls' }));
  await step('custom: replace', async () => {
    const body = await custom.getNamespacedCustomObject({ ...of, name: 'a' });
    body.spec.size = 2;
    return custom.replaceNamespacedCustomObject({ ...of, name: 'a', body });
  });
  await step('custom: patch merge', () => custom.patchNamespacedCustomObject({ ...of, name: 'a', body: { spec: { size: 3 } } }, as(MergePatch)));
  await step('custom: patch json', () =>
    custom.patchNamespacedCustomObject({ ...of, name: 'a', body: [{ op: 'add', path: '/spec/tags/-', value: 'b' }] }, as(JsonPatch)));
  await step('custom: patch status', () => custom.patchNamespacedCustomObjectStatus({ ...of, name: 'a', body: { status: { seen: true } } }, as(MergePatch)));

  // Any object, by what it says of itself.
  await step('objects: create', () => objects.create({ ...owl('b', 4), metadata: { name: 'b', namespace } }));
  const header = (name) => ({ apiVersion: `${group}/v1`, kind: 'Owl', metadata: { name, namespace } });
  await step('objects: read', () => objects.read(header('b')));
  await step('objects: list', () => objects.list(`${group}/v1`, 'Owl', namespace));
  await step('objects: patch merge', () => objects.patch({ ...header('b'), spec: { size: 5 } }, undefined, undefined, undefined, undefined, MergePatch));
  await step('objects: replace', async () => {
    const object = await objects.read(header('b'));
    return objects.replace({ ...object, spec: { size: 6 } });
  });
  await step('objects: patch strategic', () =>
    objects.patch({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'a', namespace }, stringData: { c: 'd' } }));
  await step('objects: delete', () => objects.delete(header('b')));
  await step('objects: read missing', () => objects.read(header('b')));
  await step('custom: delete', () => custom.deleteNamespacedCustomObject({ ...of, name: 'a', body: { propagationPolicy: 'Background' } }));
  await step('custom: delete collection', () => custom.deleteCollectionNamespacedCustomObject(of));
  await step('definition: delete', async () => {
    await definitions.deleteCustomResourceDefinition({ name });
    await eventually(async () => (await definitions.readCustomResourceDefinition({ name }).catch((error) => error)).code === 404);
  });
}

async function watches() {
  const labelSelector = 'test=watched';
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const body = (name) => ({ metadata: { name, labels: { test: 'watched' } } });
  const list = () => core.listNamespacedConfigMap({ namespace, labelSelector });
  const { metadata } = await list();
  const seen = [];
  const informer = k8s.makeInformer(config, path, list, labelSelector);
  for (const verb of ['add', 'update', 'delete']) {
    informer.on(verb, (object) => seen.push(`${verb} ${object.metadata.name}`));
  }
  await step('informer: start', async () => {
    await informer.start();
  });
  await step('watch: changes', async () => {
    await core.createNamespacedConfigMap({ namespace, body: body('a') });
    await core.patchNamespacedConfigMap({ name: 'a', namespace, body: { data: { a: '1' } } }, as(MergePatch));
    await core.deleteNamespacedConfigMap({ name: 'a', namespace });
  });
  await step('watch: events', async () => {
    const events = [];
    const watch = new k8s.Watch(config);
    const options = { labelSelector, resourceVersion: metadata.resourceVersion, allowWatchBookmarks: true };
    let ended;
    const running = await watch.watch(path, options, (type, object) => {
      if (type !== 'BOOKMARK') events.push({ type, object });
    }, (error) => {
      ended = error;
    });
    try {
      await eventually(async () => events.length === 3 || ended);
    } finally {
      running.abort();
    }
    return events;
  });
  await step('informer: events', async () => {
    await eventually(async () => seen.includes('delete a'));
    await informer.stop();
    return seen;
  });
}

await configMaps();
await workloads();
await customObjects();
await watches();
await step('discovery: groups', async () => {
  const { groups } = await config.makeApiClient(k8s.ApisApi).getAPIVersions();
  const known = ['apps', 'batch', 'events.k8s.io', 'apiextensions.k8s.io', 'authorization.k8s.io', 'authentication.k8s.io', 'coordination.k8s.io'];
  return groups.filter(({ name }) => known.includes(name)).sort((one, other) => (one.name < other.name ? -1 : 1));
});
await step('discovery: resources', async () => {
  const { resources } = await core.getAPIResources();
  return resources.filter(({ name }) => ['configmaps', 'pods', 'secrets'].includes(name)).map(({ name, verbs }) => [name, verbs.sort()]);
});
// Some of what this client opens stays open.
process.exit(0);
