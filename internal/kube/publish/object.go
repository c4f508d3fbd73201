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

// selectFields returns the fields of a live object that wish also has. wish is the object that the agent wants to write.
func selectFields(live, wish *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, v := range wish.Object {
		got, has := live.Object[key]
		if w, ok := v.(map[string]any); ok && has {
			if key == "metadata" {
				got = selectNested(got, w)
			} else {
				got = selectWhole(got, w)
			}
		}
		if has {
			out[key] = got
		}
	}
	return out
}

// selectNested returns the values of live whose keys are also in wish, at all levels. So the result lacks the labels and
// annotations of other programs. From a list such as the owner references, it takes only elements that wish also has.
func selectNested(live any, wish map[string]any) any {
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
			got = selectNested(got, w)
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

// selectWhole returns the values of live whose keys are also in wish, with all their content. Only the keys of the
// first level are compared, because other programs can own other fields of the same status.
func selectWhole(live any, wish map[string]any) any {
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

// equalFields compares fields by their JSON texts, because equal numbers can have different Go types.
func equalFields(a, b map[string]any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && string(x) == string(y)
}

// missingFields names the fields that the agent sent (desired) but that the server's answer (written) lacks, because
// the server did not store them.
func missingFields(written, desired map[string]any) string {
	var out []string
	for key, v := range desired {
		got, has := written[key]
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

// otherWriter names another program that owns a field of an object (managedFields). It returns "" if Trimtab owns the
// field, or if no program does.
func otherWriter(o *unstructured.Unstructured, field string) string {
	other := ""
	for _, m := range o.GetManagedFields() {
		switch {
		case !owns(m, field):
		case m.Manager == FieldManager:
			return ""
		default:
			other = m.Manager
		}
	}
	return other
}

// ownsKey reports whether Trimtab owns a field of an object.
func ownsKey(o *unstructured.Unstructured, field string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == FieldManager && owns(m, field)
	})
}

// owns reports whether an entry of managedFields has a field, which is a path such as status.topologyZone.
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

// otherVersionWriters names the programs that wrote an object in another API version than the given version.
func otherVersionWriters(o *unstructured.Unstructured, version string) string {
	var out []string
	for _, m := range o.GetManagedFields() {
		if _, v, _ := strings.Cut(m.APIVersion, "/"); v != version {
			out = append(out, m.Manager+" ("+v+")")
		}
	}
	return strings.Join(out, ", ")
}

// conflictOwner names the program that owns a field, if err says that a server-side apply failed because of a conflict
// with this program. For other errors, it returns "".
func conflictOwner(err error) string {
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

// noSuchKind reports whether a request failed because the API server does not have the kind or version.
func noSuchKind(err error) bool { return apierrors.IsNotFound(err) && !isAboutObject(err) }

// noSuchObject reports whether a request failed because the API server has the kind, but not the object.
func noSuchObject(err error) bool { return apierrors.IsNotFound(err) && isAboutObject(err) }

// isAboutObject reports whether a "not found" error means that an object is missing, and not the URL path.
func isAboutObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
}
