package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// clientOf is what the clients of all types have in common.
type clientOf[O, L any] interface {
	Create(context.Context, O, metav1.CreateOptions) (O, error)
	Update(context.Context, O, metav1.UpdateOptions) (O, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	Get(context.Context, string, metav1.GetOptions) (O, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

type statusClientOf[O any] interface {
	UpdateStatus(context.Context, O, metav1.UpdateOptions) (O, error)
}

type collectionClient interface {
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
}

type pointer[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

type list interface {
	metav1.ListInterface
	runtime.Object
}

// kind says what is done with the objects of a kind. All of it is YAML;
// changes are merge patches.
type kind struct {
	// name begins the lines of its steps, and the names of its objects.
	name   string
	object string
	// change is what an update does, patch what patches do.
	change, patch string
	// jsonPatch and strategic are patches of these types, as JSON.
	jsonPatch, strategic string
	// status is what a program reports, where there is a status.
	status string
	// invalid makes the object one that is refused.
	invalid string
	// nameOf is what an object is called, where names must have a form.
	nameOf func(string) string
	// namespace is that of the objects, or empty.
	namespace string
	// upsert is for kinds that kube-apiserver makes by an update, too.
	upsert bool
	// remain leaves the deletions out, which are another part's then.
	remain bool
}

// everyVerb does with a kind what programs do with theirs.
func everyVerb[T any, O pointer[T], L list](w *world, k kind, client clientOf[O, L]) {
	v := verbs[T, O, L]{w, k, client}
	since := v.create()
	v.read()
	v.update()
	v.updateStatus()
	v.patchAll()
	if !k.remain {
		v.delete()
		v.deleteCollection()
	}
	v.watch(since)
}

type verbs[T any, O pointer[T], L list] struct {
	*world
	kind
	client clientOf[O, L]
}

// labels keep the objects of one kind apart from those of others, and from
// those of another run.
func (v *verbs[T, O, L]) labels() string { return "test=" + v.label() }

func (v *verbs[T, O, L]) label() string { return v.world.namespace + "." + v.kind.name }

func (v *verbs[T, O, L]) called(name string) string {
	if v.nameOf != nil {
		return v.nameOf(name)
	}
	return name
}

// made is an object that is not sent yet.
func (v *verbs[T, O, L]) made(name string, changes ...string) O {
	object := O(new(T))
	if err := yaml.Unmarshal([]byte(v.object), object); err != nil {
		panic(fmt.Sprintf("%s: %v", v.kind.name, err))
	}
	object.SetName(v.called(name))
	object.SetNamespace(v.kind.namespace)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["test"] = v.label()
	object.SetLabels(labels)
	for _, change := range changes {
		object = v.changed(object, change)
	}
	return object
}

// changed is an object with a merge patch applied.
func (v *verbs[T, O, L]) changed(object O, change string) O {
	text, err := json.Marshal(object)
	if err == nil {
		text, err = jsonpatch.MergePatch(text, []byte(asJSON(change)))
	}
	after := O(new(T))
	if err == nil {
		err = json.Unmarshal(text, after)
	}
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", v.kind.name, change, err))
	}
	return after
}

func asJSON(text string) string {
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	return string(converted)
}

func (v *verbs[T, O, L]) step(name string, what func() (any, error)) {
	v.report.step(v.kind.name+": "+name, what)
}

func (v *verbs[T, O, L]) creating(name string, object O, options metav1.CreateOptions) {
	v.step(name, func() (any, error) { return v.client.Create(v.ctx, object, options) })
}

func (v *verbs[T, O, L]) updating(name string, object O, options metav1.UpdateOptions) {
	v.step(name, func() (any, error) { return v.client.Update(v.ctx, object, options) })
}

func (v *verbs[T, O, L]) getting(name, object string) {
	v.step(name, func() (any, error) {
		return v.client.Get(v.ctx, v.called(object), metav1.GetOptions{})
	})
}

func (v *verbs[T, O, L]) deleting(name, object string, options metav1.DeleteOptions) {
	v.step(name, func() (any, error) {
		return done(v.client.Delete(v.ctx, v.called(object), options))
	})
}

func (v *verbs[T, O, L]) patching(
	name, object string, form types.PatchType, patch string, options metav1.PatchOptions,
	subresources ...string,
) {
	v.step(name, func() (any, error) {
		return v.client.Patch(v.ctx, v.called(object), form, []byte(patch), options, subresources...)
	})
}

// present is an object as the server has it now; an empty one if it has none.
func (v *verbs[T, O, L]) present(name string) O {
	object, err := v.client.Get(v.ctx, v.called(name), metav1.GetOptions{})
	if err != nil {
		return v.made(name)
	}
	return object
}

var (
	dryRun     = []string{metav1.DryRunAll}
	background = ptr.To(metav1.DeletePropagationBackground)
)

// create answers with the version of the collection before it.
func (v *verbs[T, O, L]) create() string {
	since := ""
	v.step("list before", func() (any, error) {
		list, err := v.client.List(v.ctx, metav1.ListOptions{LabelSelector: v.labels()})
		if err != nil {
			return nil, err
		}
		since = list.GetResourceVersion()
		return list, nil
	})
	v.creating("create dry", v.made("a"), metav1.CreateOptions{DryRun: dryRun})
	v.getting("get what was dry", "a")
	v.creating("create a", v.made("a"), metav1.CreateOptions{FieldManager: "typed"})
	v.creating("create a again", v.made("a"), metav1.CreateOptions{})
	for _, name := range []string{"b", "c"} {
		v.creating("create "+name, v.made(name), metav1.CreateOptions{FieldValidation: "Strict"})
	}
	nameless := v.made("")
	nameless.SetName("")
	v.creating("create without a name", nameless, metav1.CreateOptions{})
	if v.kind.invalid != "" {
		v.creating("create invalid", v.made("invalid", v.kind.invalid), metav1.CreateOptions{DryRun: dryRun})
	}
	if v.kind.namespace != "" {
		elsewhere := v.made("elsewhere")
		elsewhere.SetNamespace("elsewhere")
		v.creating("create elsewhere", elsewhere, metav1.CreateOptions{})
	}
	if v.nameOf == nil {
		generated := v.made("")
		generated.SetName("")
		generated.SetGenerateName("generated-")
		v.step("create with a generated name", func() (any, error) {
			made, err := v.client.Create(v.ctx, generated, metav1.CreateOptions{})
			if err == nil {
				err = v.client.Delete(v.ctx, made.GetName(), metav1.DeleteOptions{
					GracePeriodSeconds: ptr.To[int64](0),
					PropagationPolicy:  background,
				})
			}
			return made, err
		})
	}
	return since
}

func (v *verbs[T, O, L]) read() {
	v.getting("get a", "a")
	v.getting("get missing", "missing")
	v.step("get any version", func() (any, error) {
		object, err := v.client.Get(v.ctx, v.called("a"), metav1.GetOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			// A cache may be behind.
			return "found", nil
		}
		_ = object
		return "found", err
	})
	listing := func(name string, options metav1.ListOptions) {
		if options.LabelSelector == "" {
			options.LabelSelector = v.labels()
		}
		v.step(name, func() (any, error) { return v.client.List(v.ctx, options) })
	}
	listing("list", metav1.ListOptions{})
	listing("list one", metav1.ListOptions{FieldSelector: "metadata.name=" + v.called("b")})
	listing("list none", metav1.ListOptions{LabelSelector: v.labels() + ",absent"})
	listing("list by a field that is not there", metav1.ListOptions{FieldSelector: "spec.nothing=1"})
	listing("list by a broken selector", metav1.ListOptions{LabelSelector: "a in b"})
	v.step("list in pages", func() (any, error) {
		pages := []any{}
		options := metav1.ListOptions{LabelSelector: v.labels(), Limit: 1}
		for {
			page, err := v.client.List(v.ctx, options)
			if err != nil {
				return nil, err
			}
			// The last page may be empty: behind it there is what is not selected.
			if names := v.names(page); len(names) > 0 {
				pages = append(pages, map[string]any{"names": names, "left": page.GetRemainingItemCount()})
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				return pages, nil
			}
		}
	})
	v.step("list with a broken token", func() (any, error) {
		return v.client.List(v.ctx, metav1.ListOptions{Limit: 1, Continue: "broken"})
	})
}

func (v *verbs[T, O, L]) names(page L) []string {
	items := reflect.ValueOf(page).Elem().FieldByName("Items")
	names := []string{}
	for index := range items.Len() {
		item, ok := items.Index(index).Addr().Interface().(metav1.Object)
		if ok {
			names = append(names, item.GetName())
		}
	}
	return names
}

func (v *verbs[T, O, L]) update() {
	old := v.present("a")
	v.updating("update dry", v.changed(old, v.change), metav1.UpdateOptions{DryRun: dryRun})
	v.updating("update", v.changed(old, v.change), metav1.UpdateOptions{FieldManager: "typed"})
	v.updating("update of an old version", v.changed(old, `metadata: {labels: {late: "yes"}}`), metav1.UpdateOptions{})
	same := v.present("a")
	v.step("update of nothing", func() (any, error) {
		after, err := v.client.Update(v.ctx, same, metav1.UpdateOptions{})
		if err != nil {
			return nil, err
		}
		return fmt.Sprint("same version: ", after.GetResourceVersion() == same.GetResourceVersion()), nil
	})
	unconditional := v.changed(v.present("b"), v.change)
	unconditional.SetResourceVersion("")
	v.updating("update of any version", unconditional, metav1.UpdateOptions{})
	other := v.present("b")
	other.SetUID("11111111-2222-3333-4444-555555555555")
	v.updating("update of another uid", other, metav1.UpdateOptions{})
	if !v.kind.upsert {
		missing := v.made("missing")
		missing.SetResourceVersion("1")
		v.updating("update of what is missing", missing, metav1.UpdateOptions{})
	}
	if v.kind.invalid != "" {
		v.updating("update to what is invalid", v.changed(v.present("a"), v.kind.invalid), metav1.UpdateOptions{DryRun: dryRun})
	}
}

func (v *verbs[T, O, L]) updateStatus() {
	client, ok := v.client.(statusClientOf[O])
	if !ok || v.kind.status == "" {
		return
	}
	updating := func(name string, object O) {
		v.step(name, func() (any, error) {
			return client.UpdateStatus(v.ctx, object, metav1.UpdateOptions{})
		})
	}
	old := v.present("a")
	updating("update status", v.changed(v.changed(old, v.kind.status), `metadata: {labels: {status: "yes"}}`))
	updating("update status of an old version", old)
	if !v.kind.upsert {
		missing := v.made("missing")
		missing.SetResourceVersion("1")
		updating("update status of what is missing", missing)
	}
	v.patching("patch status", "b", types.MergePatchType, asJSON(v.kind.status), metav1.PatchOptions{}, "status")
	v.updating("update leaves the status", v.changed(v.present("a"), `{metadata: {labels: {again: "yes"}}, status: null}`), metav1.UpdateOptions{})
}

func (v *verbs[T, O, L]) patchAll() {
	jsonPatch := v.kind.jsonPatch
	if jsonPatch == "" {
		jsonPatch = `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`
	}
	strategic := v.kind.strategic
	if strategic == "" {
		strategic = `{"metadata":{"labels":{"strategic":"yes"}}}`
	}
	merge := asJSON(v.kind.patch)
	none := metav1.PatchOptions{}
	v.patching("patch dry", "a", types.MergePatchType, merge, metav1.PatchOptions{DryRun: dryRun})
	v.patching("patch", "a", types.MergePatchType, merge, metav1.PatchOptions{FieldManager: "typed", FieldValidation: "Strict"})
	v.patching("patch json", "a", types.JSONPatchType, jsonPatch, none)
	v.patching("patch json test", "a", types.JSONPatchType, `[{"op":"test","path":"/metadata/name","value":"other"}]`, none)
	v.patching("patch json at nothing", "a", types.JSONPatchType, `[{"op":"remove","path":"/metadata/absent"}]`, none)
	v.patching("patch strategic", "a", types.StrategicMergePatchType, strategic, none)
	v.patching("patch of an old version", "a", types.MergePatchType, `{"metadata":{"resourceVersion":"1","labels":{"old":"yes"}}}`, none)
	v.patching("patch of what is missing", "missing", types.MergePatchType, merge, none)
	v.patching("patch that is broken", "a", types.MergePatchType, `{"metadata"`, none)
	v.patching("patch of another type", "a", types.PatchType("application/x-patch"), merge, none)
	v.patching("patch of a field that is not there", "a", types.MergePatchType, `{"absent":1}`, metav1.PatchOptions{FieldValidation: "Strict"})
	v.patching("patch adds a finalizer", "c", types.MergePatchType, `{"metadata":{"finalizers":["example.com/keep"]}}`, none)
	v.patching("patch removes a finalizer", "c", types.MergePatchType, `{"metadata":{"finalizers":null}}`, none)
}

func (v *verbs[T, O, L]) delete() {
	wrong := types.UID("11111111-2222-3333-4444-555555555555")
	a := v.present("a")
	v.deleting("delete another uid", "a", metav1.DeleteOptions{
		PropagationPolicy: background, Preconditions: &metav1.Preconditions{UID: &wrong},
	})
	v.deleting("delete another version", "a", metav1.DeleteOptions{
		PropagationPolicy: background, Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")},
	})
	v.deleting("delete dry", "a", metav1.DeleteOptions{PropagationPolicy: background, DryRun: dryRun})
	sideways := metav1.DeletionPropagation("Sideways")
	v.deleting("delete sideways", "a", metav1.DeleteOptions{PropagationPolicy: &sideways})
	v.deleting("delete a", "a", metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
		PropagationPolicy:  background,
		Preconditions:      &metav1.Preconditions{UID: ptr.To(a.GetUID()), ResourceVersion: ptr.To(a.GetResourceVersion())},
	})
	v.getting("get a after", "a")
	v.deleting("delete missing", "missing", metav1.DeleteOptions{PropagationPolicy: background})
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground} {
		name := map[metav1.DeletionPropagation]string{metav1.DeletePropagationOrphan: "b", metav1.DeletePropagationForeground: "c"}[policy]
		v.deleting("delete "+string(policy), name, metav1.DeleteOptions{PropagationPolicy: &policy})
		v.getting("get after delete "+string(policy), name)
		v.patching("end of delete "+string(policy), name, types.MergePatchType, `{"metadata":{"finalizers":null}}`, metav1.PatchOptions{})
		v.getting("get at the end of delete "+string(policy), name)
	}
	kept := v.made("kept")
	kept.SetFinalizers([]string{"example.com/keep"})
	v.creating("create with a finalizer", kept, metav1.CreateOptions{})
	v.deleting("delete with a finalizer", "kept", metav1.DeleteOptions{PropagationPolicy: background})
	v.getting("get what waits for a finalizer", "kept")
	v.updating("update takes the finalizer away", v.changed(v.present("kept"), `metadata: {finalizers: null}`), metav1.UpdateOptions{})
	v.getting("get after the finalizer", "kept")
}

func (v *verbs[T, O, L]) deleteCollection() {
	client, ok := v.client.(collectionClient)
	if !ok {
		return
	}
	for _, name := range []string{"x", "y", "z"} {
		side := map[string]string{"x": "left", "y": "left", "z": "right"}[name]
		v.creating("create "+name, v.made(name, "metadata: {labels: {side: "+side+"}}"), metav1.CreateOptions{})
	}
	left := metav1.ListOptions{LabelSelector: v.labels() + ",side=left"}
	deleting := func(name string, options metav1.DeleteOptions, selection metav1.ListOptions) {
		v.step(name, func() (any, error) { return done(client.DeleteCollection(v.ctx, options, selection)) })
		v.step("left after "+name, func() (any, error) {
			list, err := v.client.List(v.ctx, metav1.ListOptions{LabelSelector: v.labels()})
			if err != nil {
				return nil, err
			}
			return v.names(list), nil
		})
	}
	now := ptr.To[int64](0)
	deleting("delete collection dry", metav1.DeleteOptions{PropagationPolicy: background, DryRun: dryRun}, left)
	deleting("delete collection", metav1.DeleteOptions{
		GracePeriodSeconds: now, PropagationPolicy: background,
	}, left)
	deleting("delete collection by a field", metav1.DeleteOptions{GracePeriodSeconds: now, PropagationPolicy: background},
		metav1.ListOptions{LabelSelector: v.labels(), FieldSelector: "metadata.name=" + v.called("z")})
	deleting("delete collection of nothing", metav1.DeleteOptions{PropagationPolicy: background}, left)
}

// watch tells everything that has happened since a version, and what is there.
func (v *verbs[T, O, L]) watch(since string) {
	v.creating("create last", v.made("last"), metav1.CreateOptions{})
	// A watch from a version tells of the past; it ends with the last object.
	v.watching("watch from a version", metav1.ListOptions{ResourceVersion: since}, v.isLast)
	v.watching("watch one", metav1.ListOptions{
		ResourceVersion: since, FieldSelector: "metadata.name=" + v.called("last"),
	}, v.isLast)
	v.watching("watch from the start", metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	}, func(event watch.Event) bool { return event.Type == watch.Bookmark })
	v.step("watch by a broken selector", func() (any, error) {
		return v.client.Watch(v.ctx, metav1.ListOptions{LabelSelector: "a in b"})
	})
	if !v.remain {
		v.deleting("delete last", "last", metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: background,
		})
	}
}

func (v *verbs[T, O, L]) isLast(event watch.Event) bool {
	object, ok := event.Object.(metav1.Object)
	return ok && object.GetName() == v.called("last")
}

func (v *verbs[T, O, L]) watching(name string, options metav1.ListOptions, last func(watch.Event) bool) {
	options.LabelSelector = v.labels()
	v.step(name, func() (any, error) { return events(v.world, v.client.Watch, options, last) })
}

// events are those of a watch up to the last one.
func events(
	w *world, open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	options metav1.ListOptions, last func(watch.Event) bool,
) (any, error) {
	watcher, err := open(w.ctx, options)
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	deadline := time.After(patience)
	seen := []any{}
	for {
		select {
		case event, open := <-watcher.ResultChan():
			if !open {
				return append(seen, "the watch has ended"), nil
			}
			object := event.Object
			if told, ok := object.(metav1.Object); ok && event.Type == watch.Bookmark {
				// It is there for what it says about the stream.
				object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: told.GetResourceVersion(), Annotations: told.GetAnnotations(),
				}}
			}
			seen = append(seen, map[string]any{"type": event.Type, "object": object})
			if last(event) || event.Type == watch.Error {
				return seen, nil
			}
		case <-deadline:
			return append(seen, "nothing more came"), nil
		}
	}
}
