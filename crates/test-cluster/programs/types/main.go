// Describes the types of Kubernetes, as Go and protobuf have them.
//
// Arguments are groups with versions, as `v1` and `apps/v1`. Of each all kinds are
// described, and every type that is in them: a line for a package, a line for a
// type, and a line, which begins with a space, for each of its fields. What the
// lines say is described where they are read: `schema/types.rs` of the library.
package main

import (
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Types that are written down in JSON as something of their own.
var special = map[reflect.Type]string{
	reflect.TypeFor[apiextensions.JSON]():                         "json",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "schema-or-array",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "schema-or-bool",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "schema-or-strings",
	reflect.TypeFor[intstr.IntOrString]():                         "int-or-string",
	reflect.TypeFor[meta.FieldsV1]():                              "json",
	reflect.TypeFor[meta.MicroTime]():                             "micro-time",
	reflect.TypeFor[meta.Time]():                                  "time",
	reflect.TypeFor[resource.Quantity]():                          "quantity",
	reflect.TypeFor[runtime.RawExtension]():                       "json",
}

// Kinds that every server speaks of, whatever it serves.
var everywhere = []reflect.Type{
	reflect.TypeFor[meta.APIGroup](),
	reflect.TypeFor[meta.APIGroupList](),
	reflect.TypeFor[meta.APIResourceList](),
	reflect.TypeFor[meta.APIVersions](),
	reflect.TypeFor[meta.PartialObjectMetadata](),
	reflect.TypeFor[meta.PartialObjectMetadataList](),
	reflect.TypeFor[meta.Status](),
}

type marshaler interface {
	Marshal() ([]byte, error)
}

type types struct {
	kinds map[reflect.Type]bool
	found map[reflect.Type]bool
}

func main() {
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			fail(err.Error())
		}
	}
	all := types{map[reflect.Type]bool{}, map[reflect.Type]bool{}}
	versions := map[string]string{}
	for _, kind := range everywhere {
		all.kinds[kind] = true
		all.walk(kind)
	}
	for _, argument := range os.Args[1:] {
		version, err := schema.ParseGroupVersion(argument)
		if err != nil {
			fail(err.Error())
		}
		known := scheme.Scheme.KnownTypes(version)
		if len(known) == 0 {
			fail("nothing is known of " + argument)
		}
		for name, kind := range known {
			if kind.Name() != name {
				continue
			}
			if path := kind.PkgPath(); path != reflect.TypeFor[meta.Status]().PkgPath() {
				versions[path] = argument
			}
			all.kinds[kind] = true
			all.walk(kind)
		}
	}
	all.print(versions)
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}

func (all types) walk(of reflect.Type) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if of.Kind() != reflect.Pointer && isMessage(of) {
			all.found[of] = true
			return
		}
		all.walk(of.Elem())
	case reflect.Struct:
		if all.found[of] {
			return
		}
		all.found[of] = true
		if special[of] != "" {
			return
		}
		for at := range of.NumField() {
			if _, isShown := tag(of.Field(at)); isShown {
				all.walk(of.Field(at).Type)
			}
		}
	}
}

// Whether a list or a map is a message of its own in protobuf.
func isMessage(of reflect.Type) bool {
	return of.Name() != "" && reflect.PointerTo(of).Implements(reflect.TypeFor[marshaler]())
}

// The options of a field in JSON, and whether it is one.
func tag(field reflect.StructField) ([]string, bool) {
	options := strings.Split(field.Tag.Get("json"), ",")
	isShown := field.IsExported() && options[0] != "-" && field.Type != reflect.TypeFor[meta.TypeMeta]()
	return options, isShown
}

func (all types) print(versions map[string]string) {
	byPackage := map[string][]reflect.Type{}
	for of := range all.found {
		byPackage[of.PkgPath()] = append(byPackage[of.PkgPath()], of)
	}
	paths := []string{}
	for path := range byPackage {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	for _, path := range paths {
		fmt.Println(strings.TrimSpace("package " + path + " " + versions[path]))
		found := byPackage[path]
		sort.Slice(found, func(a, b int) bool { return found[a].Name() < found[b].Name() })
		for _, of := range found {
			words := []string{of.Name()}
			if all.kinds[of] {
				words = append(words, "kind")
			}
			if special[of] != "" {
				words = append(words, "= "+special[of])
			} else if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.String {
				words = append(words, "= strings")
			} else if of.Kind() != reflect.Struct {
				fail("what is a " + of.String() + "?")
			}
			fmt.Println(strings.Join(words, " "))
			if of.Kind() == reflect.Struct && special[of] == "" {
				printFields(of)
			}
		}
	}
}

func printFields(of reflect.Type) {
	for at := range of.NumField() {
		field := of.Field(at)
		options, isShown := tag(field)
		if !isShown {
			continue
		}
		has := func(wanted string) bool {
			for _, option := range options[1:] {
				if option == wanted {
					return true
				}
			}
			return false
		}
		name := options[0]
		if name == "" || has("inline") {
			name = "-"
		}
		number := "0"
		if parts := strings.Split(field.Tag.Get("protobuf"), ","); len(parts) > 1 {
			if _, err := strconv.Atoi(parts[1]); err != nil {
				fail("no number of " + of.String() + "." + name)
			}
			number = parts[1]
		}
		plain := field.Type
		isPointer := plain.Kind() == reflect.Pointer
		if isPointer {
			plain = plain.Elem()
		}
		expected, called := expression(plain, of.PkgPath())
		words := []string{"", name, number, expected}
		isStruct := plain.Kind() == reflect.Struct
		if isPointer && name != "-" {
			words = append(words, "*")
		}
		isWritten := !has("omitempty") || isStruct && !isPointer
		if isWritten && !has("omitzero") && name != "-" {
			words = append(words, "+")
		}
		if plain.String() != called && name != "-" {
			words = append(words, "go="+plain.String())
		}
		fmt.Println(strings.Join(words, " "))
	}
}

// A type as a line says it, and what it is then expected to be called in Go.
func expression(of reflect.Type, within string) (string, string) {
	if of.Kind() == reflect.Struct || isMessage(of) {
		if of.PkgPath() == within {
			return of.Name(), of.String()
		}
		steps := strings.Split(of.PkgPath(), "/")
		return strings.Join(steps[len(steps)-2:], "/") + "." + of.Name(), of.String()
	}
	switch of.Kind() {
	case reflect.Pointer:
		return expression(of.Elem(), within)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes", "[]uint8"
		}
		inner, called := expression(of.Elem(), within)
		return "[]" + inner, "[]" + called
	case reflect.Map:
		inner, called := expression(of.Elem(), within)
		return "map[string]" + inner, "map[string]" + called
	case reflect.Interface:
		return "json", "interface {}"
	}
	name := of.Kind().String()
	return name, name
}
