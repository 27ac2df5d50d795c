"""Lists a resource with the official client, watches it from there on, and
prints what it is told, a line each: follow.py KUBECONFIG GROUP VERSION RESOURCE."""

import sys

from kubernetes import client, config, watch

kubeconfig, *resource = sys.argv[1:]
config.load_kube_config(kubeconfig)
read = client.CustomObjectsApi().list_cluster_custom_object
listed = read(*resource)
print("listed", len(listed["items"]), flush=True)
version = listed["metadata"]["resourceVersion"]
for event in watch.Watch().stream(
    read, *resource, resource_version=version, allow_watch_bookmarks=True
):
    metadata = event["object"]["metadata"]
    print(event["type"], f"{metadata['namespace']}/{metadata['name']}", flush=True)
