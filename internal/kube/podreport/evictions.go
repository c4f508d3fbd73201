package podreport

import (
	"context"
	"fmt"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Evictions evicts pods whose creation the topology manager refuses again and again. Without an eviction, the kubelet
// repeats the creation of their containers for ever, and no controller replaces the pods.
type Evictions struct {
	node      Node
	client    *kube.Client
	recorder  Recorder
	threshold func() int // the number of refusals after which a pod is evicted; 0 means never
	// Debounce is how long changes are collected; tests shorten it.
	Debounce time.Duration

	refused map[events.About]*refusals // by pod

	mu      sync.Mutex // guards the fields below
	evicted uint64     // the number of evicted pods
	failed  uint64     // the number of evictions that failed
	err     error      // the error of the last eviction
}

// refusals are the failed creations of one pod's containers.
type refusals struct {
	count   int
	last    time.Time // the time of the last refusal
	reason  string    // the reason of the last refusal
	evicted bool      // the pod was evicted, or does not exist any more
	isNew   bool      // there was a refusal since the last check
}

// forgetAfter is the time without a refusal after which a pod's refusals are deleted. It is longer than five minutes,
// the longest pause after which the kubelet repeats a creation.
const forgetAfter = 15 * time.Minute

// NewEvictions makes an Evictions. threshold returns the number of refusals after which a pod is evicted; 0 means never.
func NewEvictions(n Node, c *kube.Client, to Recorder, threshold func() int) *Evictions {
	return &Evictions{node: n, client: c, recorder: to, threshold: threshold, Debounce: debounce, refused: map[events.About]*refusals{}}
}

// Run evicts pods until ctx ends.
func (e *Evictions) Run(ctx context.Context) {
	watch(ctx, e.node, e.Debounce, func(journal []api.Event, _ uint64) {
		e.countRefusals(journal)
		for about, r := range e.refused {
			if threshold := e.threshold(); threshold > 0 && r.count >= threshold && r.isNew && !r.evicted {
				e.evict(ctx, about, r)
			}
			r.isNew = false
		}
	})
}

// countRefusals counts the refusals in new events of the journal. It deletes the counts of pods whose last refusal was
// longer ago than forgetAfter.
func (e *Evictions) countRefusals(journal []api.Event) {
	var now time.Time
	for i := range journal {
		now = journal[i].Time
		about, ok := podOfEvent(&journal[i])
		if !ok || !journal[i].Unaligned {
			continue
		}
		r := e.refused[about]
		if r == nil {
			r = &refusals{}
			e.refused[about] = r
		}
		r.count, r.last, r.isNew, r.reason = r.count+1, now, true, containerPrefix(journal[i].Container)+journal[i].Rejected
	}
	for about, r := range e.refused {
		if now.Sub(r.last) > forgetAfter {
			delete(e.refused, about)
		}
	}
}

// evict requests the eviction of a pod from the API server. The request has the UID, so that it never evicts a later pod
// of the same name.
func (e *Evictions) evict(ctx context.Context, about events.About, r *refusals) {
	body := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"name": about.Name, "namespace": about.Namespace},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": about.UID}},
	}}
	_, err := e.client.Dynamic.Resource(pods).Namespace(about.Namespace).Create(ctx, body, metav1.CreateOptions{}, "eviction")
	e.client.RecordResult(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err = err; err != nil && !kerrors.IsNotFound(err) { // a pod that does not exist needs no eviction
		e.failed++
		e.recorder.Warn(about, events.EvictionFailed, fmt.Sprintf("the topology manager refused the pod %d times, and the agent cannot evict the pod: %v", r.count, err))
		e.client.Log.Warn("the agent cannot evict a pod that the topology manager refuses", logkey.Namespace, about.Namespace, logkey.Pod, about.Name, logkey.Err, err)
		return
	}
	r.evicted, e.err = true, nil
	if err != nil {
		return
	}
	e.evicted++
	e.recorder.Warn(about, events.PodEvicted, fmt.Sprintf("the agent evicted the pod, because the topology manager refused it %d times (topologyManager.evictAfter): %s", r.count, r.reason))
	e.client.Log.Info("the agent evicted a pod that the topology manager refused", logkey.Namespace, about.Namespace, logkey.Pod, about.Name, logkey.Reason, r.reason)
}

// Row returns the row about evictions for status. The row is empty if evictions are disabled.
func (e *Evictions) Row() api.ClusterPart {
	threshold := e.threshold()
	if threshold == 0 {
		return api.ClusterPart{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	row := api.ClusterPart{Name: "Evictions", State: fmt.Sprintf("after %d refusals of a pod", threshold), Written: e.evicted, Failed: e.failed}
	if e.err != nil {
		row.Error = e.err.Error()
	}
	return row
}
