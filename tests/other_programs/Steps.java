// Asks an API server for what programs in Java ask for, with fabric8's client,
// and prints what came of each step, a line each, without what differs by
// chance: java -cp … Steps.java KUBECONFIG.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.NonDeletingOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Steps {
    private static final String NAMESPACE = "java";
    /** How long something may take that happens by itself, in seconds. */
    private static final int PATIENCE = 60;
    private static final ObjectMapper JSON =
            new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
    private static final Set<String> HIDDEN = Set.of("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp");

    private final KubernetesClient client;

    private Steps(KubernetesClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        Config config = Config.fromKubeconfig(new File(arguments[0]));
        try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build()) {
            client.resource(new NamespaceBuilder().withNewMetadata().withName(NAMESPACE).endMetadata().build()).create();
            Steps steps = new Steps(client);
            steps.configMaps();
            steps.watches();
            steps.deletions();
            steps.workloads();
        }
        // Some of what this client starts goes on.
        System.exit(0);
    }

    private static void step(String name, Callable<Object> what) {
        String line;
        try {
            line = normal(what.call());
        } catch (KubernetesClientException error) {
            line = "error " + error.getCode() + " " + (error.getStatus() == null ? error.getMessage() : normal(error.getStatus()));
        } catch (Exception error) {
            line = "error " + error;
        }
        System.out.println(name + ": " + line
                .replaceAll("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID")
                .replaceAll("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?Z", "TIME")
                .replaceAll("(in record )\\(\\d+\\)", "$1(VERSION)")
                .replaceAll("https://[^/ ]*", "https://SERVER")
                .replace("\n", "\\n"));
    }

    /** A value as JSON, with its members in order, without what is another one each time. */
    private static String normal(Object value) {
        try {
            JsonNode tree = JSON.readTree(Serialization.asJson(value));
            hide(tree);
            return JSON.writeValueAsString(JSON.treeToValue(tree, Object.class));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void hide(JsonNode tree) {
        if (tree instanceof ObjectNode object) {
            object.remove("managedFields");
            for (String name : HIDDEN) {
                if (object.hasNonNull(name)) {
                    object.put(name, name.toUpperCase());
                }
            }
        }
        if (tree instanceof ObjectNode || tree instanceof ArrayNode) {
            tree.forEach(Steps::hide);
        }
    }

    private Resource<ConfigMap> map(String name) {
        return client.configMaps().inNamespace(NAMESPACE).withName(name);
    }

    private static ConfigMap made(String name, String data) {
        return new ConfigMapBuilder()
                .withNewMetadata().withName(name).withNamespace(NAMESPACE).addToLabels("test", "maps").endMetadata()
                .addToData("a", data)
                .build();
    }

    private void configMaps() {
        for (String name : List.of("a", "b", "c")) {
            step("config-map: create " + name, () -> client.resource(made(name, "1")).create());
        }
        step("config-map: create again", () -> client.resource(made("a", "1")).create());
        step("config-map: create dry", () -> client.resource(made("dry", "1")).dryRun(true).create());
        step("config-map: create invalid", () -> client.resource(made("Not a name", "1")).create());
        step("config-map: get", () -> map("a").get());
        step("config-map: get missing", () -> map("missing").get());
        step("config-map: list", () -> names(client.configMaps().inNamespace(NAMESPACE).withLabel("test", "maps").list().getItems()));
        step("config-map: list a page", () -> names(client.configMaps().inNamespace(NAMESPACE)
                .list(new ListOptionsBuilder().withLimit(1L).withLabelSelector("test=maps").build()).getItems()));
        step("config-map: list everywhere", () -> names(client.configMaps().inAnyNamespace().withField("metadata.name", "b").list().getItems()));
        step("config-map: edit", () -> map("a").edit(old -> new ConfigMapBuilder(old).addToData("b", "2").build()));
        step("config-map: patch merge", () -> map("a").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"c\":\"3\"}}"));
        step("config-map: patch strategic", () -> map("a").patch(PatchContext.of(PatchType.STRATEGIC_MERGE), "{\"data\":{\"d\":\"4\"}}"));
        step("config-map: patch json", () -> map("a").patch(PatchContext.of(PatchType.JSON), "[{\"op\":\"remove\",\"path\":\"/data/c\"}]"));
        step("config-map: update", () -> {
            ConfigMap old = map("a").get();
            old.setData(Map.of("x", "y"));
            return client.resource(old).update();
        });
        step("config-map: update of an old version", () -> {
            ConfigMap old = map("a").get();
            old.getMetadata().setResourceVersion("1");
            return client.resource(old).lockResourceVersion("1").update();
        });
        step("config-map: create or update", () -> client.resource(made("a", "5")).createOr(NonDeletingOperation::update));
        step("config-map: apply", () -> {
            ConfigMap applied = made("applied", "1");
            applied.getMetadata().setLabels(null);
            return client.resource(applied).serverSideApply();
        });
    }

    private static List<String> names(List<ConfigMap> maps) {
        return maps.stream().map(map -> map.getMetadata().getName()).toList();
    }

    /** Both are WebSockets in this client. */
    private void watches() {
        BlockingQueue<String> informed = new LinkedBlockingQueue<>();
        BlockingQueue<String> watched = new LinkedBlockingQueue<>();
        step("watch: changes", () -> {
            var selected = client.configMaps().inNamespace(NAMESPACE).withLabel("test", "maps");
            var since = selected.list().getMetadata().getResourceVersion();
            var informer = selected.inform(new ResourceEventHandler<ConfigMap>() {
                @Override
                public void onAdd(ConfigMap map) {
                    informed.add("added " + map.getMetadata().getName());
                }

                @Override
                public void onUpdate(ConfigMap old, ConfigMap map) {
                    informed.add("updated " + map.getMetadata().getName() + " " + map.getData());
                }

                @Override
                public void onDelete(ConfigMap map, boolean unknown) {
                    informed.add("deleted " + map.getMetadata().getName());
                }
            });
            var watch = selected.watch(new ListOptionsBuilder().withResourceVersion(since).build(), new Watcher<ConfigMap>() {
                @Override
                public void eventReceived(Action action, ConfigMap map) {
                    watched.add(action + " " + normal(map));
                }

                @Override
                public void onClose(WatcherException cause) {
                    watched.add("closed " + cause);
                }
            });
            client.resource(made("seen", "1")).create();
            map("seen").edit(old -> new ConfigMapBuilder(old).addToData("a", "2").build());
            map("seen").delete();
            List<String> seen = new ArrayList<>();
            while (seen.isEmpty() || !seen.get(seen.size() - 1).equals("deleted seen")) {
                String event = informed.poll(PATIENCE, TimeUnit.SECONDS);
                if (event == null) {
                    throw new IllegalStateException("after " + seen + " nothing more came");
                }
                // What was there before comes in any order.
                if (event.contains("seen")) {
                    seen.add(event);
                }
            }
            for (int count = 0; count < 3; count++) {
                seen.add(String.valueOf(watched.poll(PATIENCE, TimeUnit.SECONDS)));
            }
            watch.close();
            informer.close();
            return seen;
        });
    }

    private void deletions() {
        step("config-map: delete", () -> map("b").withPropagationPolicy(DeletionPropagation.BACKGROUND).withGracePeriod(0).delete().size());
        step("config-map: get after", () -> map("b").get());
        step("config-map: delete of an old version", () -> {
            ConfigMap old = map("c").get();
            return client.resource(old).lockResourceVersion("1").delete().size();
        });
        step("config-map: delete missing", () -> map("missing").delete().size());
        step("config-map: delete collection", () -> client.configMaps().inNamespace(NAMESPACE).withLabel("test", "maps").delete().size());
    }

    private void workloads() {
        var deployments = client.apps().deployments().inNamespace(NAMESPACE);
        Deployment deployment = new DeploymentBuilder()
                .withNewMetadata().withName("web").withNamespace(NAMESPACE).endMetadata()
                .withNewSpec().withReplicas(1).withNewSelector().addToMatchLabels("app", "web").endSelector()
                .withNewTemplate().withNewMetadata().addToLabels("app", "web").endMetadata()
                .withNewSpec().addNewContainer().withName("main").withImage("image:1").endContainer().endSpec()
                .endTemplate().endSpec()
                .build();
        step("deployment: create", () -> client.resource(deployment).create());
        step("deployment: scale", () -> deployments.withName("web").scale(3));
        step("deployment: get scale", () -> deployments.withName("web").scale());
        step("deployment: roll out", () -> deployments.withName("web").rolling().updateImage("image:2"));
        step("deployment: generic", () -> client.genericKubernetesResources("apps/v1", "Deployment").inNamespace(NAMESPACE).withName("web").get());
        Pod pod = new PodBuilder()
                .withNewMetadata().withName("pod").withNamespace(NAMESPACE).endMetadata()
                .withNewSpec().withNodeName("meadow").addNewContainer().withName("main").withImage("image:1").endContainer().endSpec()
                .build();
        var pods = client.pods().inNamespace(NAMESPACE).withName("pod");
        step("pod: create", () -> client.resource(pod).create());
        step("pod: edit status", () -> pods.editStatus(old -> new PodBuilder(old).editOrNewStatus()
                .withPhase("Running").addNewCondition().withType("Ready").withStatus("True").endCondition().endStatus().build()));
        step("pod: wait", () -> pods.waitUntilReady(PATIENCE, TimeUnit.SECONDS).getMetadata().getName());
        step("pod: evict", () -> pods.evict());
        step("discovery: supports", () -> List.of(client.supports(Deployment.class), client.hasApiGroup("batch", true)));
        step("discovery: version", () -> client.getKubernetesVersion().getMinor());
        step("namespace: delete", () -> client.namespaces().withName(NAMESPACE).delete().size());
    }
}
