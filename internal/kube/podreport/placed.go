package podreport

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// PlacementAnnotation is the key of the annotation with a pod's placement.
const PlacementAnnotation = "trimtab.io/placement"

// pods names the resource of Pod objects for requests to the API server.
var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// placementAnnotation is the value of the annotation PlacementAnnotation.
type placementAnnotation struct {
	Class      string                        `json:"class"`
	Containers map[string]containerPlacement `json:"containers"` // by container name
}

// containerPlacement has the CPUs and memory nodes of one container.
type containerPlacement struct {
	CPUs      string `json:"cpus"`                // a kernel list
	Mems      string `json:"mems,omitempty"`      // a kernel list of memory nodes; "" if none are set
	Exclusive bool   `json:"exclusive,omitempty"` // the container owns the CPUs
}

// Placements writes the placement of each pod into an annotation of the pod, when the placement has changed.
type Placements struct {
	node     Node
	client   *kube.Client
	released func() bool // whether `trimtab release` has restored the node; annotations are then removed
	// Debounce is how long changes are collected; tests shorten it.
	Debounce time.Duration

	mu         sync.Mutex           // guards the fields below
	written    map[types.UID]string // the last value that was written or refused; "" after a removal
	writeCount uint64               // the number of successful writes
	refused    uint64               // the number of writes that the API server refused permanently
	lastErr    error                // the error of the last write; nil if it succeeded
	// failures counts the failed writes that Run repeats later.
	failures uint64
}

// NewPlacements makes a Placements. If the function released returns true, the Placements removes the annotations in
// place of writing them.
func NewPlacements(n Node, c *kube.Client, released func() bool) *Placements {
	return &Placements{node: n, client: c, released: released, Debounce: batchTime, written: map[types.UID]string{}}
}

// batchTime is how long a Placements collects changes before it writes annotations.
const batchTime = 10 * time.Second

// Run writes annotations until ctx ends. It repeats failed writes at the next event of the journal, or after
// sweepInterval.
func (p *Placements) Run(ctx context.Context) {
	watch(ctx, p.node, p.Debounce, func([]api.Event, uint64) { _ = p.writeAll(ctx) })
}

// Release removes the annotations now, if `trimtab release` has restored the node.
func (p *Placements) Release(ctx context.Context) error {
	if !p.released() {
		return nil
	}
	if err := p.writeAll(ctx); err != nil {
		return fmt.Errorf("remove the annotations %s: %w", PlacementAnnotation, err)
	}
	return nil
}

// writeAll writes all changed annotations. It stops at the first write that must be repeated later, and returns the
// error of this write.
func (p *Placements) writeAll(ctx context.Context) error {
	live := map[types.UID]bool{}
	for _, id := range nodeview.Sandboxes(p.node) {
		s, ok := nodeview.StateOf(p.node, id)
		if !ok || s.UID == "" || len(s.Containers) == 0 {
			continue
		}
		live[types.UID(s.UID)] = true
		if err := p.write(ctx, &s); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	p.forgetEnded(live)
	return nil
}

// forgetEnded deletes the entries of ended pods from the map written. live has the UIDs of all pods that have not
// ended.
func (p *Placements) forgetEnded(live map[types.UID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.written {
		if !live[uid] {
			delete(p.written, uid)
		}
	}
}

// write writes the annotation of a pod if its value has changed. It returns an error if the write must be repeated
// later. After a permanent refusal of the API server, it returns nil.
func (p *Placements) write(ctx context.Context, s *nodeview.PodState) error {
	var value []byte
	var annotation any // nil becomes null in the patch, which removes the annotation
	if !p.released() {
		var err error
		if value, err = json.Marshal(placementOf(s)); err != nil {
			return err
		}
		annotation = string(value)
	}
	uid := types.UID(s.UID)
	p.mu.Lock()
	before, known := p.written[uid]
	p.mu.Unlock()
	if known && before == string(value) {
		return nil
	}
	// The request has the UID, so that it never changes a later pod of the same name.
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.UID, "annotations": map[string]any{PlacementAnnotation: annotation},
	}})
	if err != nil {
		return err
	}
	_, err = p.client.Dynamic.Resource(pods).Namespace(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{})
	p.client.RecordResult(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastErr = err
	switch {
	case err == nil:
		p.writeCount++
	case kerrors.IsNotFound(err), kerrors.IsForbidden(err), kerrors.IsInvalid(err):
		// The pod was removed, or it is a static pod, whose object has another UID, or an admission policy refuses
		// the request. The agent tries again only when the placement changes.
		p.refused++
		p.client.Log.Debug("the agent cannot write a pod's placement", logkey.Namespace, s.Namespace, logkey.Pod, s.Name, logkey.Err, err)
	default:
		p.failures++
		return err
	}
	p.written[uid] = string(value)
	return nil
}

// Row returns the row about the annotations for status.
func (p *Placements) Row() api.ClusterPart {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := api.ClusterPart{
		Name: "PodAnnotation", State: fmt.Sprintf("%d pods handled, %d writes refused by the API server", len(p.written), p.refused),
		Written: p.writeCount, Failed: p.refused + p.failures,
	}
	if p.lastErr != nil {
		row.Error = p.lastErr.Error()
	}
	return row
}

// placementOf returns the value of a pod's annotation. Its JSON text is always the same for the same placement.
func placementOf(s *nodeview.PodState) placementAnnotation {
	out := placementAnnotation{Class: cmp.Or(s.Class, "none"), Containers: map[string]containerPlacement{}}
	for _, c := range s.Containers {
		out.Containers[c.Name] = containerPlacement{CPUs: c.CPUs, Mems: c.Mems, Exclusive: c.Exclusive}
	}
	return out
}
