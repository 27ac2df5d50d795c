package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// report prints what came of each step, without what differs by chance.
type report struct {
	hidden   *strings.Replacer
	lock     sync.Mutex
	warnings []string
}

func newReport(namespace string) *report {
	return &report{hidden: strings.NewReplacer(namespace, "NAMESPACE")}
}

var (
	uid     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	server  = regexp.MustCompile(`https://[^/" ]+`)
	// The version that a message about a precondition names.
	version = regexp.MustCompile(`(match the ResourceVersion in record )\(\d+\)`)
	// Where an object is kept, what it was when it was refused, and what a
	// parser says: words that no program reads.
	key     = regexp.MustCompile(`Key: [^ ,]*`)
	refused = regexp.MustCompile(`(Invalid value: \\?")\{.*?(\}\\?": strict decoding error)`)
	parser  = regexp.MustCompile(`(continue key is not valid): .*`)
	random  = regexp.MustCompile(`\b(generated-)[bcdfghjklmnpqrstvwxz2456789]{5}\b`)
)

// HandleWarningHeader keeps what a server warns of for the line of the step.
func (r *report) HandleWarningHeader(code int, _ string, text string) {
	if code != 299 || text == "" {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.warnings = append(r.warnings, text)
}

// step does something and prints what came of it.
func (r *report) step(name string, what func() (any, error)) {
	value, err := what()
	r.lock.Lock()
	warnings := r.warnings
	r.warnings = nil
	r.lock.Unlock()
	var line string
	if err != nil {
		line = said(err)
	} else {
		line = normal(value)
	}
	for _, warning := range warnings {
		line += " warning: " + warning
	}
	fmt.Fprintf(os.Stdout, "%s: %s\n", name, r.hide(line))
}

// hide replaces what is another one each time.
func (r *report) hide(line string) string {
	line = uid.ReplaceAllString(line, "UID")
	line = instant.ReplaceAllString(line, "TIME")
	line = server.ReplaceAllString(line, "https://SERVER")
	line = version.ReplaceAllString(line, "${1}(VERSION)")
	line = key.ReplaceAllString(line, "Key: KEY")
	line = refused.ReplaceAllString(line, "${1}VALUE${2}")
	line = parser.ReplaceAllString(line, "${1}: WORDS")
	line = random.ReplaceAllString(line, "${1}RANDOM")
	return r.hidden.Replace(strings.ReplaceAll(line, "\n", "\\n"))
}

// said is an error as a program finds it: what it may decide by comes first.
func said(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "error: " + err.Error()
	}
	answer := status.Status()
	message := answer.Message
	if answer.Details != nil && len(answer.Details.Causes) > 1 {
		// They come in another order each time; the message says them again.
		slices.SortFunc(answer.Details.Causes, func(one, other metav1.StatusCause) int {
			return strings.Compare(one.Field+one.Message, other.Field+other.Message)
		})
		message, _, _ = strings.Cut(message, ": [")
	}
	details, _ := json.Marshal(answer.Details)
	return fmt.Sprintf("error %d %s: %s %s", answer.Code, answer.Reason, message, details)
}

// normal is a value as JSON, with placeholders for what differs by chance.
func normal(value any) string {
	switch value := value.(type) {
	case nil:
		return "done"
	case string:
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "error: " + err.Error()
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return "error: " + err.Error()
	}
	text, err = json.Marshal(hideMembers(tree))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(text)
}

func hideMembers(tree any) any {
	switch tree := tree.(type) {
	case []any:
		for index, item := range tree {
			tree[index] = hideMembers(item)
		}
	case map[string]any:
		for name, member := range tree {
			switch name {
			case "managedFields":
				delete(tree, name)
				continue
			case "items":
				// What an item of a list says about its own type is up to the server.
				// An empty one is null in Go where it was read from protobuf.
				items, _ := member.([]any)
				if member == nil {
					tree[name] = []any{}
					continue
				}
				for _, item := range items {
					if item, ok := item.(map[string]any); ok {
						delete(item, "kind")
						delete(item, "apiVersion")
					}
				}
			case "resourceVersion", "continue", "clusterIP":
				if text, ok := member.(string); ok && text != "" && text != "None" {
					tree[name] = strings.ToUpper(name)
					continue
				}
			case "clusterIPs":
				if addresses, ok := member.([]any); ok && len(addresses) > 0 && addresses[0] != "None" {
					tree[name] = len(addresses)
					continue
				}
			case "nodePort":
				tree[name] = "PORT"
				continue
			}
			tree[name] = hideMembers(member)
		}
	}
	return tree
}

// eventually repeats a question until its answer is yes.
func (w *world) eventually(ask func() (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(w.ctx, 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			var yes bool
			yes, last = ask()
			return yes && last == nil, nil
		})
	if err != nil && last != nil {
		return last
	}
	return err
}

// done is the result of a step that answers with nothing but an error.
func done(err error) (any, error) { return nil, err }

func namesOf[T metav1.Object](objects []T) []string {
	names := make([]string, 0, len(objects))
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names
}
