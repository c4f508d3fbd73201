package publish

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
)

var zonesOf = schema.GroupResource{Group: "g", Resource: "zones"}

// TestPauses: pauses after failures grow up to the longest, and are not shorter than the server requests.
func TestPauses(t *testing.T) {
	p := New(&kube.Client{Log: slog.New(slog.DiscardHandler)}, Report{Kind: "Zones"}, Pace{Retry: time.Second, CheckInterval: time.Minute})
	near := func(got, want time.Duration) bool { return got >= want*9/10 && got <= want*11/10+1 }
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		if got, wakes := p.noteFailure("write", errors.New("no route")); !near(got, want) || wakes {
			t.Errorf("failure %d: %v, want %v", i, got, want)
		}
	}
	for range 70 { // a large shift does not overflow
		p.noteFailure("write", errors.New("no route"))
	}
	p.failures = 0
	if got, _ := p.noteFailure("write", apierrors.NewTooManyRequests("later", 40)); !near(got, 40*time.Second) {
		t.Errorf("asked for 40 s: %v", got)
	}
	if row := p.Row(); row.Failed != 79 || row.Error == "" {
		t.Errorf("%+v", row)
	}
}

// TestAnswers: the meaning of the server's errors.
func TestAnswers(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, cause metav1.CauseType, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: cause, Message: message}},
		}}}
	}
	page := status(http.StatusNotFound, metav1.StatusReasonNotFound, metav1.CauseTypeUnexpectedServerResponse, "404 page not found")
	applied := status(http.StatusConflict, metav1.StatusReasonConflict, metav1.CauseTypeFieldManagerConflict, `conflict with "nfd-master" using g/v1: .zones`)
	for _, tc := range []struct {
		name         string
		err          error
		kind, object bool
		conflict     string
	}{
		{name: "no such path", err: page, kind: true},
		{name: "no such object", err: apierrors.NewNotFound(zonesOf, "n1"), object: true},
		{name: "another has it", err: applied, conflict: "nfd-master"},
		{name: "it changed meanwhile", err: apierrors.NewConflict(zonesOf, "n1", errors.New("old"))},
		{name: "overloaded", err: apierrors.NewTooManyRequests("later", 1)},
		{name: "broken", err: apierrors.NewInternalError(errors.New("etcd"))},
		{name: "nobody there", err: errors.New("connection refused")},
		{name: "unknown user", err: apierrors.NewUnauthorized("expired")},
		{name: "forbidden", err: apierrors.NewForbidden(zonesOf, "n1", errors.New("no"))},
	} {
		if got := noSuchKind(tc.err); got != tc.kind {
			t.Errorf("%s: no such kind: %v", tc.name, got)
		}
		if got := noSuchObject(tc.err); got != tc.object {
			t.Errorf("%s: no such object: %v", tc.name, got)
		}
		if got := conflictOwner(tc.err); got != tc.conflict {
			t.Errorf("%s: conflict with %q", tc.name, got)
		}
	}
}

// TestPart: labels, annotations and fields of other programs do not count as differences.
func TestPart(t *testing.T) {
	object := func(annotations map[string]any, fields map[string]any) *unstructured.Unstructured {
		o := map[string]any{"metadata": map[string]any{"name": "n1", "annotations": annotations}}
		for key, v := range fields {
			o[key] = v
		}
		return &unstructured.Unstructured{Object: o}
	}
	wish := object(map[string]any{"a": "1"}, map[string]any{"zones": []any{int64(1)}, "attributes": "x"})
	for _, tc := range []struct {
		name string
		live *unstructured.Unstructured
		same bool
		lack string
	}{
		{"equal", wish, true, ""},
		{"more", object(map[string]any{"a": "1", "b": "2"}, map[string]any{"zones": []any{int64(1)}, "attributes": "x", "theirs": true}), true, ""},
		{"another value", object(map[string]any{"a": "2"}, map[string]any{"zones": []any{int64(1)}, "attributes": "x"}), false, ""},
		{"an annotation less", object(map[string]any{}, map[string]any{"zones": []any{int64(1)}, "attributes": "x"}), false, ""},
		{"another's status", object(map[string]any{"a": "1"}, map[string]any{"zones": []any{int64(1)}, "attributes": "x", "status": map[string]any{"more": 1}}), true, ""},
		{"a field less", object(map[string]any{"a": "1"}, map[string]any{"zones": []any{int64(1)}}), false, "attributes"},
	} {
		ours := selectFields(tc.live, wish)
		if got := equalFields(ours, wish.Object); got != tc.same {
			t.Errorf("%s: same: %v", tc.name, got)
		}
		if got := missingFields(ours, wish.Object); got != tc.lack {
			t.Errorf("%s: lacks %q", tc.name, got)
		}
	}
}

// TestBelow: fields of other programs in a status do not count as differences, and the writer of the object
// is the writer of the key field.
func TestBelow(t *testing.T) {
	wish := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"zones": []any{"a"}}}}
	for _, tc := range []struct {
		name   string
		status map[string]any
		same   bool
		lack   string
	}{
		{"equal, and a condition", map[string]any{"zones": []any{"a"}, "conditions": []any{"x"}}, true, ""},
		{"a zone more", map[string]any{"zones": []any{"a", "b"}}, false, ""},
		{"a field less", map[string]any{"conditions": []any{"x"}}, false, "status.zones"},
	} {
		ours := selectFields(&unstructured.Unstructured{Object: map[string]any{"status": tc.status}}, wish)
		if got := equalFields(ours, wish.Object); got != tc.same {
			t.Errorf("%s: same: %v", tc.name, got)
		}
		if got := missingFields(ours, wish.Object); got != tc.lack {
			t.Errorf("%s: lacks %q", tc.name, got)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "koordlet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:zones":{}}}`)}})
	if otherWriter(o, "status.zones") != "koordlet" || otherWriter(o, "status.conditions") != "" {
		t.Error("the writer of a field below status is not found")
	}
}

// TestWriter: an object belongs to the program that writes its key field.
func TestWriter(t *testing.T) {
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, APIVersion: "g/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const zones, note = `{"f:zones":{}}`, `{"f:metadata":{"f:annotations":{}}}`
	for _, tc := range []struct {
		name string
		all  []metav1.ManagedFieldsEntry
		want string
		ours bool
	}{
		{"nobody", nil, "", false},
		{"us", []metav1.ManagedFieldsEntry{entry(FieldManager, zones), entry("kubectl", note)}, "", true},
		{"another", []metav1.ManagedFieldsEntry{entry(FieldManager, note), entry("koordlet", zones)}, "koordlet", false},
		{"both, with one value", []metav1.ManagedFieldsEntry{entry("koordlet", zones), entry(FieldManager, zones)}, "", true},
		{"another field below", []metav1.ManagedFieldsEntry{entry("kubectl", `{"f:status":{"f:conditions":{}}}`)}, "", false},
		{"unreadable", []metav1.ManagedFieldsEntry{entry("koordlet", "{"), {Manager: "old"}}, "", false},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetManagedFields(tc.all)
		if got := otherWriter(o, "zones"); got != tc.want {
			t.Errorf("%s: %q", tc.name, got)
		}
		if got := ownsKey(o, "zones"); got != tc.ours {
			t.Errorf("%s: ours: %v", tc.name, got)
		}
	}
}
