package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// resource is the Event of core/v1. kubectl describe shows the count and the times of these events. An
// Event of events.k8s.io/v1 is the same object with other names of fields.
var resource = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// reportingComponent is the field reportingComponent of the events, which admission policies can compare.
const reportingComponent = "trimtab"

// maxFirstWait bounds the random wait before the first event after an idle time. The wait spreads the load on the API
// server when, for example, a thousand agents refuse the same ConfigMap at once.
const maxFirstWait = 5 * time.Second

// maxCounted bounds the number of Event objects whose counts the Recorder keeps (Recorder.written).
const maxCounted = 1024

// Run writes events until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	node := bucket{size: nodeBurst, refillInterval: writeInterval, tokens: nodeBurst, countedAt: r.now()}
	pause := time.Duration(0)
	for {
		p := r.oldest()
		if p == nil {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			if !sleep.For(ctx, rand.N(maxFirstWait)) { //nolint:gosec // only spreads load
				return
			}
			continue
		}
		for !node.take(r.now()) {
			if !sleep.For(ctx, writeInterval/2) {
				return
			}
		}
		err := r.write(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = 0
			continue
		}
		pause = min(max(time.Second, 2*pause), maxPause)
		if !sleep.For(ctx, jitter(pause)) {
			return
		}
	}
}

// oldest returns a copy of the oldest event in the queue, or nil if the queue is empty. The event stays in the queue
// until it is written.
func (r *Recorder) oldest() *pendingEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil
	}
	copied := *r.queue[0]
	return &copied
}

// write writes an event and removes it from the queue. After an error the event stays in the queue, and the caller
// tries again later.
func (r *Recorder) write(ctx context.Context, p *pendingEvent) error {
	name := objectName(r.client.Node, p)
	err := r.createOrUpdate(ctx, name, p)
	r.client.RecordResult(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastErr = err
	switch {
	case err == nil:
		r.finish(p, ResultWritten)
		if len(r.written) > maxCounted {
			clear(r.written) // the recorder then does not know the counts in these Event objects any more
		}
		if p.about.Version == "" {
			r.written[name] += p.count
		}
		return nil
	case isPermanent(err):
		r.finish(p, ResultRefused)
		r.client.Log.Warn("the API server refused an event", logkey.Kind, p.about.Kind, logkey.Namespace, p.about.Namespace,
			logkey.Pod, p.about.Name, logkey.Reason, string(p.reason), logkey.Err, err)
		return nil
	}
	return err
}

// finish removes an event from the queue. If the event's count has grown in the meantime, the event stays in the queue
// with the count that is not written yet.
func (r *Recorder) finish(p *pendingEvent, result string) {
	r.tally[result]++
	i := slices.IndexFunc(r.queue, func(q *pendingEvent) bool { return q.key == p.key })
	if i < 0 {
		return // Warn has dropped the event in the meantime, because the queue was full
	}
	if q := r.queue[i]; q.count > p.count {
		q.count -= p.count
		q.first = q.last
		return
	}
	r.queue = slices.Delete(r.queue, i, i+1)
}

// isPermanent reports whether an error means that the same request will fail again: the namespace is being
// deleted, a policy refuses the request, or the object is invalid.
func isPermanent(err error) bool {
	return kerrors.IsForbidden(err) || kerrors.IsNotFound(err) || kerrors.IsInvalid(err) || kerrors.IsBadRequest(err) ||
		kerrors.IsRequestEntityTooLargeError(err)
}

// createOrUpdate creates the Event object of an event, or updates the existing Event object.
func (r *Recorder) createOrUpdate(ctx context.Context, name string, p *pendingEvent) error {
	events := r.client.Dynamic.Resource(resource).Namespace(cmp.Or(p.about.Namespace, metav1.NamespaceDefault))
	r.mu.Lock()
	before, known := r.written[name]
	r.mu.Unlock()
	if !known {
		_, err := events.Create(ctx, r.object(name, p), metav1.CreateOptions{})
		if !kerrors.IsAlreadyExists(err) {
			return err
		}
		if p.about.Version != "" { // another node, or an earlier run of this agent, has written the event for all nodes
			return nil
		}
	}
	// If known is false, the recorder does not know the count in the Event object, and does not change the count.
	change := map[string]any{"message": p.message, "lastTimestamp": kube.FormatTime(p.last)}
	if known {
		change["count"] = before + p.count
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = events.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if !kerrors.IsNotFound(err) {
		return err
	}
	// The Event object no longer exists: by default, the API server deletes events after an hour.
	r.mu.Lock()
	delete(r.written, name)
	r.mu.Unlock()
	_, err = events.Create(ctx, r.object(name, p), metav1.CreateOptions{})
	return err
}

// object returns a new Event object with the fields of an event.
func (r *Recorder) object(name string, p *pendingEvent) *unstructured.Unstructured {
	about := map[string]any{"apiVersion": cmp.Or(p.about.APIVersion, "v1"), "kind": p.about.Kind, "name": p.about.Name}
	for field, value := range map[string]string{"namespace": p.about.Namespace, "uid": p.about.UID} {
		if value != "" {
			about[field] = value
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":           map[string]any{"name": name, "namespace": cmp.Or(p.about.Namespace, metav1.NamespaceDefault)},
		"involvedObject":     about,
		"type":               "Warning",
		"reason":             string(p.reason),
		"message":            p.message,
		"count":              p.count,
		"firstTimestamp":     kube.FormatTime(p.first),
		"lastTimestamp":      kube.FormatTime(p.last),
		"source":             map[string]any{"component": reportingComponent, "host": r.client.Node},
		"reportingComponent": reportingComponent,
		"reportingInstance":  r.client.Node,
	}}
}

// objectName returns the name of the Event object for an event. All events of a node with the same object and reason
// have the same name, so a restarted agent updates the Event object that it wrote before. For an event with a Version,
// all nodes that report the same message use the same name.
func objectName(node string, p *pendingEvent) string {
	h := fnv.New64a()
	scope := []string{node}
	if p.about.Version != "" {
		scope = []string{p.about.Version, p.message}
	}
	for _, s := range append(scope, p.about.Kind, p.about.Namespace, p.about.Name, p.about.UID, string(p.reason)) {
		h.Write([]byte(s + "\x00"))
	}
	// Kubernetes allows names of at most 253 bytes.
	return fmt.Sprintf("%s.trimtab-%016x", strings.ToLower(p.about.Name[:min(len(p.about.Name), 220)]), h.Sum64())
}
