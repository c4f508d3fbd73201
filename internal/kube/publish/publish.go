package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// status is the name of the object's field status, and of the subresource status.
const status = "status"

// FieldManager is the name of Trimtab's field manager in server-side apply.
const FieldManager = "trimtab"

// Report describes the object to write. The object is cluster scoped and has the node's name.
type Report struct {
	Kind     string
	Resource schema.GroupVersionResource
	// Key is a field, such as zones or status.topologyZone. If another program owns this field, the publisher does not
	// write the object.
	Key string
	// HasStatusSubresource means that the CRD has the subresource status. The publisher then writes the field status
	// with it.
	HasStatusSubresource bool
	// NewerField is a field that an older API version of the object lacks. If a program updates the object in the older
	// version, the API server removes the field. "" means that there is no such field.
	NewerField string
	// Make returns the annotations and the top-level fields of the object. If there is a field metadata, the publisher
	// uses only its labels.
	Make func() (annotations map[string]string, fields map[string]any)
	// OnRead is called with the object each time the publisher has read it. OnRead may be nil.
	OnRead func(*unstructured.Unstructured)
	// OnNodeLabels is called with the labels of the Node, before the first call of Make and then every CheckInterval.
	// OnNodeLabels may be nil.
	OnNodeLabels func(labels map[string]string)
	// Note returns which data the object should have and lacks, and why; "" if it lacks nothing. Note may be nil.
	Note func() string
	// Ready returns the reason why the agent has nothing to report yet; nil if the agent has something to report.
	Ready func() error
	// Changed returns a channel that is closed when Make possibly returns something new.
	Changed func() <-chan struct{}
}

// Pace has the pauses between reads and writes. A field that is 0 means its default.
type Pace struct {
	// Spread is the longest random pause before the first request, by default 30 s. So a thousand agents that start at
	// the same time do not write at the same time.
	Spread time.Duration
	// MinInterval is the shortest time between two writes, by default 2 s.
	MinInterval time.Duration
	// CheckInterval is how often the publisher reads the object to find changes by other programs. If the CRD is
	// missing, it is how often the publisher looks for the CRD. The default is 5 min.
	CheckInterval time.Duration
	// Retry is the first pause after a failure, by default 1 s. Each further pause is twice as long as the
	// last one, up to CheckInterval.
	Retry time.Duration
}

const (
	debounce       = 200 * time.Millisecond // the shortest pause after a change, because changes come in groups
	requestTimeout = 30 * time.Second       // the time limit for the requests of one reconcile
	// recomputeInterval is how often the publisher calls Make without a notification, because some changes have none,
	// such as those of a device plugin. The publisher sends a request only if the result is new.
	recomputeInterval = time.Minute
)

// withDefaults returns p with the defaults in place of fields that are not positive.
func (p Pace) withDefaults() Pace {
	for _, d := range []struct {
		field        *time.Duration
		defaultValue time.Duration
	}{{&p.Spread, 30 * time.Second}, {&p.MinInterval, 2 * time.Second}, {&p.CheckInterval, 5 * time.Minute}, {&p.Retry, time.Second}} {
		if *d.field <= 0 {
			*d.field = d.defaultValue
		}
	}
	return p
}

// Publisher keeps one object in the API server up to date.
type Publisher struct {
	client *kube.Client
	report Report
	pace   Pace
	log    *slog.Logger

	// Only Run's goroutine uses the fields from here to mu.
	uid       string                     // the UID of the Node; "" while it is unknown
	lastWrite *lastObject                // nil if the content of the object is unknown
	failures  int                        // failures in a row
	found     *unstructured.Unstructured // the object as it was last read or written; nil if it did not exist
	// lostField is a text for status about the field that another program removed last; "" if there is none.
	lostField string

	mu  sync.Mutex // guards the fields below
	row api.ClusterPart
}

// lastObject is the object as the publisher last read or wrote it.
type lastObject struct {
	desired     string         // the desired annotations and fields at that time, as JSON
	lastWritten map[string]any // the values that the object then had in the agent's fields
	writtenAt   time.Time      // when the publisher read or wrote the object
	// live is the whole object. The next write uses it without another read, and the server refuses that write if
	// the object has changed. nil means that the publisher must read the object first.
	live *unstructured.Unstructured
}

// New makes a publisher of the object that r describes.
func New(c *kube.Client, r Report, p Pace) *Publisher {
	return &Publisher{client: c, report: r, pace: p.withDefaults(), log: c.Log, row: api.ClusterPart{Name: r.Kind, State: "not written yet: the report starts"}}
}

// Row returns the row for status. It implements kube.StatusReporter.
func (p *Publisher) Row() api.ClusterPart {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row
}

// Run keeps the object up to date until ctx ends. It implements kube.Service.
func (p *Publisher) Run(ctx context.Context) {
	sleep.For(ctx, rand.N(p.pace.Spread))
	for ctx.Err() == nil {
		changed := p.report.Changed()
		next, wakes := p.reconcile(ctx)
		if !wakes {
			changed = nil
		}
		if !sleep.UntilWoken(ctx, next, changed) {
			continue
		}
		rest := debounce + rand.N(debounce)
		if p.lastWrite != nil {
			rest = max(rest, time.Until(p.lastWrite.writtenAt.Add(p.pace.MinInterval)))
		}
		sleep.For(ctx, rest)
	}
}

// reconcile reads and writes the object as necessary. next is the pause before the next call. wakes reports whether a
// notification by Report.Changed ends this pause.
func (p *Publisher) reconcile(ctx context.Context) (next time.Duration, wakes bool) {
	if err := p.report.Ready(); err != nil {
		p.setState("waits: "+err.Error(), nil)
		return p.pace.Retry, true
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	due := p.lastWrite == nil || time.Since(p.lastWrite.writtenAt) >= p.pace.CheckInterval
	if p.uid == "" || due && p.report.OnNodeLabels != nil {
		if err := p.findNode(ctx); err != nil {
			return p.noteFailure("read the Node "+p.client.Node, err)
		}
	}
	annotations, fields := p.report.Make()
	text, err := json.Marshal([]any{annotations, fields})
	if err != nil {
		return p.noteFailure("encode the object", err)
	}
	desired := string(text)
	if s := p.lastWrite; s != nil && s.desired == desired && !due {
		p.updateRow(func(r *api.ClusterPart) { r.Skipped++ })
		return min(time.Until(s.writtenAt.Add(p.pace.CheckInterval)), recomputeInterval), true
	}
	object := p.object(annotations, fields)
	if p.lastWrite != nil && !due && p.lastWrite.live != nil {
		next, wakes, stale := p.apply(ctx, object, desired)
		if !stale {
			return next, wakes
		}
		p.lastWrite.live = nil
	}
	if next, done := p.readObject(ctx, object, desired); done {
		return next, p.failures == 0 && p.lastWrite != nil
	}
	if p.uid == "" { // readObject found no object, so the Node is possibly a new Node with the same name: read its UID first
		return p.pace.Retry, false
	}
	if p.lastWrite != nil {
		// The next write must not check the resourceVersion: the object was read just now, and forgetVersions has
		// possibly changed it.
		p.lastWrite.live = nil
	}
	next, wakes, _ = p.apply(ctx, object, desired)
	return next, wakes
}

// findNode reads the Node: its UID for the object's owner reference, and its labels for Report.OnNodeLabels.
func (p *Publisher) findNode(ctx context.Context) error {
	node, err := p.client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Get(ctx, p.client.Node, metav1.GetOptions{})
	p.client.RecordResult(err)
	if err != nil {
		return err
	}
	if p.uid = string(node.GetUID()); p.report.OnNodeLabels != nil {
		p.report.OnNodeLabels(node.GetLabels())
	}
	return nil
}

// object returns the object to apply. It has only the fields that the agent sets.
func (p *Publisher) object(annotations map[string]string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for key, v := range fields {
		if key != "metadata" {
			o.Object[key] = v
		}
	}
	o.SetAPIVersion(p.report.Resource.GroupVersion().String())
	o.SetKind(p.report.Kind)
	o.SetName(p.client.Node)
	labels := map[string]string{"app.kubernetes.io/managed-by": FieldManager}
	more, _, _ := unstructured.NestedStringMap(fields, "metadata", "labels") // no error: Make returns strings
	maps.Copy(labels, more)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.client.Node, UID: nodeUID(p.uid)}})
	return o
}

// readObject reads the object. done means that the publisher must not write the object now, and next is the pause.
func (p *Publisher) readObject(ctx context.Context, object *unstructured.Unstructured, desired string) (next time.Duration, done bool) {
	live, err := p.client.Dynamic.Resource(p.report.Resource).Get(ctx, p.client.Node, metav1.GetOptions{})
	p.client.RecordResult(err)
	if p.found = live; err != nil {
		p.found = nil
	}
	switch {
	case noSuchKind(err):
		next, _ = p.noteMissingKind(ctx)
		return next, true
	case noSuchObject(err):
		if p.lastWrite != nil { // the garbage collector deleted the object together with its Node
			p.lastWrite, p.uid = nil, ""
		}
		return 0, false
	case err != nil:
		next, _ = p.noteFailure("read the object", err)
		return next, true
	}
	if p.report.OnRead != nil {
		p.report.OnRead(live)
	}
	if other := otherWriter(live, p.report.Key); other != "" {
		next, _ = p.noteCeded(other)
		return next, true
	}
	want := p.objectForUpdate(object)
	ours := selectFields(live, want)
	if equalFields(ours, want.Object) || p.lastWrite != nil && p.lastWrite.desired == desired && equalFields(ours, p.lastWrite.lastWritten) {
		p.storeLast(desired, ours, live)
		p.updateRow(func(r *api.ClusterPart) { r.Skipped++ })
		p.setUpToDate("up to date" + p.lostField)
		return p.pace.CheckInterval, true
	}
	if _, has := live.Object[p.report.NewerField]; p.report.NewerField != "" && !has && ownsKey(live, p.report.Key) {
		p.lostField = fmt.Sprintf("; the field %s had been removed by an update in an older API version (programs that use other versions: %s)", p.report.NewerField, otherVersionWriters(live, p.report.Resource.Version))
		p.log.Warn("another program updated an object through an older API version, and this removed a field that the agent writes; the agent writes the field again", logkey.Kind, p.report.Kind,
			logkey.Field, p.report.NewerField, logkey.Reason, strings.TrimPrefix(p.lostField, "; "))
	}
	if err := p.forgetVersions(ctx, live); err != nil {
		next, _ = p.noteFailure("remove other API versions from the object's managed fields", err)
		return next, true
	}
	return 0, false
}

// forgetVersions removes the entries of other API versions from an object's managed fields. If such a version lacks a
// field that the agent sets, the API server refuses every apply with an internal error (Kubernetes 1.36: "failed to
// prune fields ... field not declared in schema").
func (p *Publisher) forgetVersions(ctx context.Context, live *unstructured.Unstructured) error {
	all := live.GetManagedFields()
	kept := slices.DeleteFunc(slices.Clone(all), func(m metav1.ManagedFieldsEntry) bool {
		return m.APIVersion != p.report.Resource.GroupVersion().String()
	})
	if len(kept) == len(all) {
		return nil
	}
	live.SetManagedFields(kept)
	_, err := p.client.Dynamic.Resource(p.report.Resource).Update(ctx, live, metav1.UpdateOptions{FieldManager: FieldManager})
	p.client.RecordResult(err)
	return err
}

// apply writes the object. If another program owns one of its fields, the object stays as it is, and apply notes this.
// stale means that the object has changed since the publisher last read or wrote it, so the caller must read it.
func (p *Publisher) apply(ctx context.Context, object *unstructured.Unstructured, desired string) (next time.Duration, wakes, stale bool) {
	live, err := p.write(ctx, object)
	p.client.RecordResult(err)
	other := conflictOwner(err)
	switch {
	case other != "":
		next, wakes = p.noteCeded(other)
	case noSuchKind(err):
		next, wakes = p.noteMissingKind(ctx)
	case (apierrors.IsConflict(err) || noSuchObject(err)) && p.lastWrite != nil && p.lastWrite.live != nil:
		return 0, false, true
	case err != nil:
		next, wakes = p.noteFailure("write the object", err)
	default:
		next, wakes = p.storeApplied(object, live, desired), true
	}
	return next, wakes, false
}

// storeApplied stores the object that the server returned after a write, and returns the pause until the next check.
func (p *Publisher) storeApplied(object, live *unstructured.Unstructured, desired string) (next time.Duration) {
	want := p.objectForUpdate(object)
	ours := selectFields(live, want)
	p.storeLast(desired, ours, live)
	p.updateRow(func(r *api.ClusterPart) { r.Written++ })
	state := "written " + time.Now().UTC().Format(time.DateTime) + " UTC" + p.lostField
	if missing := missingFields(ours, want.Object); missing != "" {
		p.setState(state, fmt.Errorf("the server did not store %s, because the CRD's schema lacks it: install a newer CRD", missing))
		return p.pace.CheckInterval
	}
	p.setUpToDate(state)
	return p.pace.CheckInterval
}

// write applies an object. If the status is a subresource, write creates a missing object without its status, and then
// applies only the status.
func (p *Publisher) write(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects, options := p.client.Dynamic.Resource(p.report.Resource), metav1.ApplyOptions{FieldManager: FieldManager}
	if !p.report.HasStatusSubresource {
		return objects.Apply(ctx, p.client.Node, p.withVersion(object), options)
	}
	if p.found == nil {
		rest := object.DeepCopy()
		delete(rest.Object, status)
		if _, err := objects.Apply(ctx, p.client.Node, rest, options); err != nil {
			return nil, err
		}
	}
	live, err := objects.ApplyStatus(ctx, p.client.Node, p.withVersion(p.objectForUpdate(object)), options)
	if apierrors.IsNotFound(err) && (p.lastWrite == nil || p.lastWrite.live == nil) { // the object existed a moment ago
		return nil, fmt.Errorf("the CustomResourceDefinition %s.%s has no subresource status; install a newer CustomResourceDefinition", p.report.Resource.Resource, p.report.Resource.Group)
	}
	return live, err
}

// withVersion adds the UID and resourceVersion of the last read to an object. The server then refuses the write if a
// program has changed the object since. Without a last read, it returns the object unchanged.
func (p *Publisher) withVersion(object *unstructured.Unstructured) *unstructured.Unstructured {
	if p.lastWrite == nil || p.lastWrite.live == nil {
		return object
	}
	out := object.DeepCopy()
	out.SetUID(p.lastWrite.live.GetUID())
	out.SetResourceVersion(p.lastWrite.live.GetResourceVersion())
	return out
}

// objectForUpdate returns the fields that the agent writes if the object exists. If the status is a subresource, this is
// only the status.
func (p *Publisher) objectForUpdate(object *unstructured.Unstructured) *unstructured.Unstructured {
	if !p.report.HasStatusSubresource {
		return object
	}
	below := &unstructured.Unstructured{Object: map[string]any{status: object.Object[status]}}
	below.SetAPIVersion(object.GetAPIVersion())
	below.SetKind(object.GetKind())
	below.SetName(object.GetName())
	return below
}

// storeLast stores the object that was just read or written.
func (p *Publisher) storeLast(desired string, ours map[string]any, live *unstructured.Unstructured) {
	p.found = live
	p.failures, p.lastWrite = 0, &lastObject{desired: desired, lastWritten: ours, writtenAt: time.Now(), live: live}
}
