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

const status = "status"

// Manager is our name among the writers of an object's fields.
const Manager = "trimtab"

// Report says what object is written. It is cluster scoped and named like the node.
type Report struct {
	Kind     string
	Resource schema.GroupVersionResource
	// Key is the field whose writer the object belongs to, such as zones or
	// status.topologyZone.
	Key string
	// Status: the object has its status as a subresource, and that is written there.
	Status bool
	// Later is a field that an older version of the object lacks: an update through
	// that version removes it; "" for none.
	Later string
	// Make returns annotations and fields at the top of the object; of the metadata,
	// labels are taken.
	Make func() (annotations map[string]string, fields map[string]any)
	// Read gets the object whenever it is read; nil for nobody.
	Read func(*unstructured.Unstructured)
	// Node gets the labels of the Node, before Make and whenever the object is read; nil
	// for nobody.
	Node func(labels map[string]string)
	// Note says what the object lacks that it should have, and why, "" for nothing; nil
	// for a report without such things.
	Note func() string
	// Ready says why there is nothing to report yet; nil where there is.
	Ready func() error
	// Changed returns a channel that is closed when Make may return something else.
	Changed func() <-chan struct{}
}

// Pace is how often is written and looked. The zero value has the usual times.
type Pace struct {
	// Spread is the longest pause before the first request, 30 s: agents of a
	// thousand nodes that start at once come one after the other.
	Spread time.Duration
	// Rest is the shortest time between two writes, 2 s.
	Rest time.Duration
	// Again is how often the object is read to see what others did to it, 5 min; and
	// how often a CRD is looked for that is not there.
	Again time.Duration
	// Retry is the first pause after a failure, 1 s; each is twice as long as the one
	// before, up to Again.
	Retry time.Duration
}

const (
	debounce = 200 * time.Millisecond // changes come in groups: a sandbox, its containers
	patience = 30 * time.Second       // for one request
	// recompute is how often Make is called without a change that was notified, such
	// as that of a device plugin. The server is asked only if something is new.
	recompute = time.Minute
)

func (p Pace) orUsual() Pace {
	for _, d := range []struct {
		of    *time.Duration
		usual time.Duration
	}{{&p.Spread, 30 * time.Second}, {&p.Rest, 2 * time.Second}, {&p.Again, 5 * time.Minute}, {&p.Retry, time.Second}} {
		if *d.of <= 0 {
			*d.of = d.usual
		}
	}
	return p
}

// Publisher keeps one object up to date.
type Publisher struct {
	client *kube.Client
	report Report
	pace   Pace
	log    *slog.Logger

	// Of Run's goroutine alone:
	uid   string                     // of the Node; "" for not known
	seen  *seen                      // nil for not known
	fails int                        // in a row
	found *unstructured.Unstructured // by the last look; nil for no object
	// lost says what another program removed last; "" for nothing.
	lost string

	mu  sync.Mutex // guards all below
	row api.ClusterPart
}

// seen is the object when it was read or written last.
type seen struct {
	wish string         // what it was to be
	ours map[string]any // those of its fields that are ours, as they were
	at   time.Time
	// live is the whole object: the next write is made of it without reading it again,
	// and refused where another changed it since. It is nil where it is to be read.
	live *unstructured.Unstructured
}

// New makes a publisher of a report.
func New(c *kube.Client, r Report, p Pace) *Publisher {
	return &Publisher{client: c, report: r, pace: p.orUsual(), log: c.Log, row: api.ClusterPart{Name: r.Kind, State: "starts"}}
}

// Row implements kube.Part.
func (p *Publisher) Row() api.ClusterPart {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row
}

// Run implements kube.Service.
func (p *Publisher) Run(ctx context.Context) {
	sleep.For(ctx, rand.N(p.pace.Spread))
	for ctx.Err() == nil {
		changed := p.report.Changed()
		next, wakes := p.round(ctx)
		if !wakes {
			changed = nil
		}
		if !sleep.Unless(ctx, next, changed) {
			continue
		}
		rest := debounce + rand.N(debounce)
		if p.seen != nil {
			rest = max(rest, time.Until(p.seen.at.Add(p.pace.Rest)))
		}
		sleep.For(ctx, rest)
	}
}

// round brings the object up to date. It returns when to come again, and whether a
// change is a reason to come earlier.
func (p *Publisher) round(ctx context.Context) (next time.Duration, wakes bool) {
	if err := p.report.Ready(); err != nil {
		p.tell("waits: "+err.Error(), nil)
		return p.pace.Retry, true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	due := p.seen == nil || time.Since(p.seen.at) >= p.pace.Again
	if p.uid == "" || due && p.report.Node != nil {
		if err := p.findNode(ctx); err != nil {
			return p.failed("read the Node "+p.client.Node, err)
		}
	}
	annotations, fields := p.report.Make()
	text, err := json.Marshal([]any{annotations, fields})
	if err != nil {
		return p.failed("encode", err)
	}
	wish := string(text)
	if s := p.seen; s != nil && s.wish == wish && !due {
		p.count(func(r *api.ClusterPart) { r.Skipped++ })
		return min(time.Until(s.at.Add(p.pace.Again)), recompute), true
	}
	object := p.object(annotations, fields)
	if p.seen != nil && !due && p.seen.live != nil {
		next, wakes, stale := p.apply(ctx, object, wish)
		if !stale {
			return next, wakes
		}
		p.seen.live = nil
	}
	if next, done := p.look(ctx, object, wish); done {
		return next, p.fails == 0 && p.seen != nil
	}
	if p.uid == "" { // it is gone, as its Node is, or was
		return p.pace.Retry, false
	}
	next, wakes, _ = p.apply(ctx, object, wish)
	return next, wakes
}

// findNode reads the UID that the object's owner reference has, and the labels.
func (p *Publisher) findNode(ctx context.Context) error {
	node, err := p.client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).Get(ctx, p.client.Node, metav1.GetOptions{})
	p.client.Note(err)
	if err != nil {
		return err
	}
	if p.uid = string(node.GetUID()); p.report.Node != nil {
		p.report.Node(node.GetLabels())
	}
	return nil
}

// object is what is applied: no field that is not ours.
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
	labels := map[string]string{"app.kubernetes.io/managed-by": Manager}
	more, _, _ := unstructured.NestedStringMap(fields, "metadata", "labels") // ours, and so of this type
	maps.Copy(labels, more)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.client.Node, UID: nodeUID(p.uid)}})
	return o
}

// look reads the object. done says that there is nothing to write.
func (p *Publisher) look(ctx context.Context, object *unstructured.Unstructured, wish string) (next time.Duration, done bool) {
	live, err := p.client.Dynamic.Resource(p.report.Resource).Get(ctx, p.client.Node, metav1.GetOptions{})
	p.client.Note(err)
	if p.found = live; err != nil {
		p.found = nil
	}
	switch {
	case noSuchKind(err):
		next, _ = p.absent(ctx)
		return next, true
	case noSuchObject(err):
		if p.seen != nil { // deleted: by the garbage collector, where the Node was
			p.seen, p.uid = nil, ""
		}
		return 0, false
	case err != nil:
		next, _ = p.failed("read", err)
		return next, true
	}
	if p.report.Read != nil {
		p.report.Read(live)
	}
	if other := writer(live, p.report.Key); other != "" {
		next, _ = p.ceded(other)
		return next, true
	}
	want := p.part(object)
	ours := part(live, want)
	if same(ours, want.Object) || p.seen != nil && p.seen.wish == wish && same(ours, p.seen.ours) {
		p.keep(wish, ours, live)
		p.count(func(r *api.ClusterPart) { r.Skipped++ })
		p.tellDone("up to date" + p.lost)
		return p.pace.Again, true
	}
	if _, has := live.Object[p.report.Later]; p.report.Later != "" && !has && ownsKey(live, p.report.Key) {
		p.lost = fmt.Sprintf("; %s had been removed by an update through an older version, by %s", p.report.Later, throughOther(live, p.report.Resource.Version))
		p.log.Warn("an update through an older version of an object removed a field of ours; it is written again", logkey.Kind, p.report.Kind,
			logkey.Field, p.report.Later, logkey.Reason, strings.TrimPrefix(p.lost, "; "))
	}
	if err := p.forgetVersions(ctx, live); err != nil {
		next, _ = p.failed("clear the writers through other versions", err)
		return next, true
	}
	return 0, false
}

// forgetVersions takes the writers through other versions off an object's list of
// writers, if there are any. With a field that their version lacks, the API server
// refuses every apply with an internal error (Kubernetes 1.36: "failed to prune
// fields ... field not declared in schema").
func (p *Publisher) forgetVersions(ctx context.Context, live *unstructured.Unstructured) error {
	all := live.GetManagedFields()
	kept := slices.DeleteFunc(slices.Clone(all), func(m metav1.ManagedFieldsEntry) bool {
		return m.APIVersion != p.report.Resource.GroupVersion().String()
	})
	if len(kept) == len(all) {
		return nil
	}
	live.SetManagedFields(kept)
	_, err := p.client.Dynamic.Resource(p.report.Resource).Update(ctx, live, metav1.UpdateOptions{FieldManager: Manager})
	p.client.Note(err)
	return err
}

// apply writes the object. What another program writes is a conflict, and stays. stale says that the object is not what
// it was when it was read or written last, so that it has to be read.
func (p *Publisher) apply(ctx context.Context, object *unstructured.Unstructured, wish string) (next time.Duration, wakes, stale bool) {
	live, err := p.write(ctx, object)
	p.client.Note(err)
	other := conflict(err)
	switch {
	case other != "":
		next, wakes = p.ceded(other)
	case noSuchKind(err):
		next, wakes = p.absent(ctx)
	case (apierrors.IsConflict(err) || noSuchObject(err)) && p.seen != nil && p.seen.live != nil:
		return 0, false, true
	case err != nil:
		next, wakes = p.failed("write", err)
	default:
		next, wakes = p.applied(object, live, wish)
	}
	return next, wakes, false
}

// applied notes what the server made of the object.
func (p *Publisher) applied(object, live *unstructured.Unstructured, wish string) (next time.Duration, wakes bool) {
	want := p.part(object)
	ours := part(live, want)
	p.keep(wish, ours, live)
	p.count(func(r *api.ClusterPart) { r.Written++ })
	state := "written " + time.Now().UTC().Format(time.DateTime) + " UTC" + p.lost
	if lacks := missing(ours, want.Object); lacks != "" {
		p.tell(state, fmt.Errorf("the CRD's schema drops %s: install a newer one", lacks))
		return p.pace.Again, true
	}
	p.tellDone(state)
	return p.pace.Again, true
}

// write applies an object, and its status where that is a subresource. Then all else of
// an object that is there already is its maker's.
func (p *Publisher) write(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects, options := p.client.Dynamic.Resource(p.report.Resource), metav1.ApplyOptions{FieldManager: Manager}
	if !p.report.Status {
		return objects.Apply(ctx, p.client.Node, p.since(object), options)
	}
	if p.found == nil {
		rest := object.DeepCopy()
		delete(rest.Object, status)
		if _, err := objects.Apply(ctx, p.client.Node, rest, options); err != nil {
			return nil, err
		}
	}
	live, err := objects.ApplyStatus(ctx, p.client.Node, p.since(p.part(object)), options)
	if apierrors.IsNotFound(err) && (p.seen == nil || p.seen.live == nil) { // there was an object a moment ago
		return nil, fmt.Errorf("the CustomResourceDefinition %s.%s has no subresource status; install a newer one", p.report.Resource.Resource, p.report.Resource.Group)
	}
	return live, err
}

// since is an object that is written only if nobody wrote or deleted it since it was seen.
func (p *Publisher) since(object *unstructured.Unstructured) *unstructured.Unstructured {
	if p.seen == nil || p.seen.live == nil {
		return object
	}
	out := object.DeepCopy()
	out.SetUID(p.seen.live.GetUID())
	out.SetResourceVersion(p.seen.live.GetResourceVersion())
	return out
}

// part is what of an object is ours where it is there already.
func (p *Publisher) part(object *unstructured.Unstructured) *unstructured.Unstructured {
	if !p.report.Status {
		return object
	}
	below := &unstructured.Unstructured{Object: map[string]any{status: object.Object[status]}}
	below.SetAPIVersion(object.GetAPIVersion())
	below.SetKind(object.GetKind())
	below.SetName(object.GetName())
	return below
}

func (p *Publisher) keep(wish string, ours map[string]any, live *unstructured.Unstructured) {
	p.found = live
	p.fails, p.seen = 0, &seen{wish: wish, ours: ours, at: time.Now(), live: live}
}
