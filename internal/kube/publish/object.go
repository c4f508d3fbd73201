package publish

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func nodeUID(uid string) types.UID { return types.UID(uid) }

// part returns the fields of a live object that wish has, too.
func part(live, wish *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, v := range wish.Object {
		got, has := live.Object[key]
		if w, ok := v.(map[string]any); ok && has {
			if key == "metadata" {
				got = partOf(got, w)
			} else {
				got = fieldsOf(got, w)
			}
		}
		if has {
			out[key] = got
		}
	}
	return out
}

// partOf does the same for the levels below. It leaves out other programs' labels and annotations, and the elements
// of lists that wish does not have, such as owner references.
func partOf(live any, wish map[string]any) any {
	l, ok := live.(map[string]any)
	if !ok {
		return live
	}
	out := map[string]any{}
	for key, w := range wish {
		got, has := l[key]
		if !has {
			continue
		}
		switch w := w.(type) {
		case map[string]any:
			got = partOf(got, w)
		case []any:
			if list, ok := got.([]any); ok {
				got = slices.DeleteFunc(slices.Clone(list), func(v any) bool {
					return !slices.ContainsFunc(w, func(o any) bool { return reflect.DeepEqual(v, o) })
				})
			}
		}
		out[key] = got
	}
	return out
}

// fieldsOf returns the fields of live that wish has, with all their content: other programs may write other fields
// of a status.
func fieldsOf(live any, wish map[string]any) any {
	l, ok := live.(map[string]any)
	if !ok {
		return live
	}
	out := map[string]any{}
	for key := range wish {
		if got, has := l[key]; has {
			out[key] = got
		}
	}
	return out
}

// same compares fields by their JSON, because a number may have one of several types.
func same(a, b map[string]any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && string(x) == string(y)
}

// missing names the fields of wish that the object lacks.
func missing(ours, wish map[string]any) string {
	var out []string
	for key, v := range wish {
		got, has := ours[key]
		if !has {
			out = append(out, key)
			continue
		}
		below, _ := v.(map[string]any)
		for name := range below {
			if g, ok := got.(map[string]any); ok && key != "metadata" && g[name] == nil {
				out = append(out, key+"."+name)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// writer names another program that writes a field of an object; "" if we write it, or
// no program does.
func writer(o *unstructured.Unstructured, field string) string {
	other := ""
	for _, m := range o.GetManagedFields() {
		switch {
		case !owns(m, field):
		case m.Manager == Manager:
			return ""
		default:
			other = m.Manager
		}
	}
	return other
}

func ownsKey(o *unstructured.Unstructured, field string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == Manager && owns(m, field)
	})
}

func owns(m metav1.ManagedFieldsEntry, field string) bool {
	if m.FieldsV1 == nil {
		return false
	}
	below := json.RawMessage(m.FieldsV1.GetRawBytes())
	for name := range strings.SplitSeq(field, ".") {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(below, &fields); err != nil {
			return false
		}
		var has bool
		if below, has = fields["f:"+name]; !has {
			return false
		}
	}
	return true
}

// throughOther names the programs that wrote an object in another API version.
func throughOther(o *unstructured.Unstructured, version string) string {
	var out []string
	for _, m := range o.GetManagedFields() {
		if _, v, _ := strings.Cut(m.APIVersion, "/"); v != version {
			out = append(out, m.Manager+" ("+v+")")
		}
	}
	return strings.Join(out, ", ")
}

// conflict names the program that owns a field of a failed apply; "" for another error.
func conflict(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, c := range status.Status().Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		if _, rest, quoted := strings.Cut(c.Message, `"`); quoted {
			name, _, _ := strings.Cut(rest, `"`)
			return name
		}
		return "another program"
	}
	return ""
}

// noSuchKind reports whether the server does not have the kind or version. noSuchObject reports whether it lacks
// only the object.
func noSuchKind(err error) bool { return apierrors.IsNotFound(err) && !named(err) }

func noSuchObject(err error) bool { return apierrors.IsNotFound(err) && named(err) }

// named reports whether an answer is about an object and not about the URL path.
func named(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
