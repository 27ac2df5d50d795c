// Encodes objects in protobuf, as programs written in Go send them.
//
// Each line of standard input is an object in JSON. It is read into the Go type
// of its kind, and answered with a line of JSON: `protobuf`, the object as typed
// clients send it, in base64, and `json`, the object as Go writes it down; or
// `error`. A kind that is not known in its own group is looked for in `v1`, as
// options are the same everywhere, and then among those of metadata.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The beginning of every object in protobuf.
var magic = []byte{'k', '8', 's', 0}

type answer struct {
	Protobuf []byte          `json:"protobuf,omitempty"`
	JSON     json.RawMessage `json:"json,omitempty"`
	Error    string          `json:"error,omitempty"`
}

type marshaler interface {
	Marshal() ([]byte, error)
}

type unmarshaler interface {
	Unmarshal([]byte) error
}

func main() {
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme, meta.AddMetaToScheme} {
		if err := add(scheme.Scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		answered, err := encode(lines.Bytes())
		if err != nil {
			answered = answer{Error: err.Error()}
		}
		if err := out.Encode(answered); err != nil {
			os.Exit(1)
		}
	}
}

// A line that has `protobuf` is read the other way round.
func decode(protobuf []byte) (answer, error) {
	body, isEnveloped := bytes.CutPrefix(protobuf, magic)
	if !isEnveloped {
		return answer{}, errors.New("there is no magic number")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(body); err != nil {
		return answer{}, err
	}
	object, err := newObject(unknown.TypeMeta)
	if err != nil {
		return answer{}, err
	}
	if err := object.(unmarshaler).Unmarshal(unknown.Raw); err != nil {
		return answer{}, err
	}
	written, err := json.Marshal(object)
	return answer{JSON: written}, err
}

func newObject(types runtime.TypeMeta) (runtime.Object, error) {
	kind := schema.FromAPIVersionAndKind(types.APIVersion, types.Kind)
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		object, err = scheme.Scheme.New(schema.GroupVersionKind{Version: "v1", Kind: kind.Kind})
	}
	if err != nil {
		object, err = scheme.Scheme.New(meta.SchemeGroupVersion.WithKind(kind.Kind))
	}
	return object, err
}

func encode(line []byte) (answer, error) {
	var given answer
	if err := json.Unmarshal(line, &given); err == nil && given.Protobuf != nil {
		return decode(given.Protobuf)
	}
	var types runtime.TypeMeta
	if err := json.Unmarshal(line, &types); err != nil {
		return answer{}, err
	}
	object, err := newObject(types)
	if err != nil {
		return answer{}, err
	}
	if err := json.Unmarshal(line, object); err != nil {
		return answer{}, err
	}
	raw, err := object.(marshaler).Marshal()
	if err != nil {
		return answer{}, err
	}
	unknown := runtime.Unknown{TypeMeta: types, Raw: raw}
	enveloped, err := unknown.Marshal()
	if err != nil {
		return answer{}, err
	}
	written, err := json.Marshal(object)
	if err != nil {
		return answer{}, err
	}
	return answer{Protobuf: append(append([]byte{}, magic...), enveloped...), JSON: written}, nil
}
