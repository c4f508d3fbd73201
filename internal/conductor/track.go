package conductor

import (
	"sync"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// node is what is decided on the node and how far it has been brought there. Its
// methods run under mu and do no I/O; those that take mu themselves say so.
type node struct {
	mu sync.Mutex // guards all below; never held across I/O

	state         *engine.State
	tracks        map[string]*track // by container or sandbox id
	queue         *runtimesync.Queue
	runtimes      map[string]attached
	ceded         map[lifecycle.Field]bool
	failedCreates map[placement.Key]int // creations in a row that failed after us
	checkpoint    *record.Checkpoint
	signer        *record.Signer
	unified       bool // cgroups are of version 2
}

// track is what is known of one container beyond the engine's state: what became
// of its values, and how far the runtime is. Of a pod it is the values alone.
// node.track makes it and node.forget drops it.
type track struct {
	runtimesync.Copy                            // the runtime's stored copy
	sent             deliveries                 // what became of its values; nil where nothing was brought to it
	given            map[lifecycle.Field]string // what it was created with and no runtime reports
	cgroup           cgroupPath
	noCgroupPath     bool // its creation named no cgroup that can be used
	undescribed      bool // the runtime listed it without a description
}

// cgroupPath is a container's cgroup, and what it follows from.
type cgroupPath struct{ parent, path, dir string }

// track returns what is known of a container or pod; it makes what it does not find.
func (n *node) track(id string) *track {
	t := n.tracks[id]
	if t == nil {
		t = &track{Copy: runtimesync.Copy{ID: id}}
		n.tracks[id] = t
	}
	return t
}

// of returns what became of a value. Nothing is known of a nil track.
func (t *track) of(v lifecycle.Value) (d delivery, ok bool) {
	if t == nil {
		return delivery{}, false
	}
	return t.sent.of(v)
}

// give remembers a value that a container is created with and no runtime reports
// later; its record has it too.
func (t *track) give(v lifecycle.Value) {
	if !unreported(v.Field) {
		return
	}
	if t.given == nil {
		t.given = map[lifecycle.Field]string{}
	}
	t.given[v.Field] = v.Text
}

// deliver notes what became of a value.
func (t *track) deliver(v lifecycle.Value, d delivery) {
	d.Field, d.Key = v.Field, v.Key
	if i := t.sent.at(v); i >= 0 {
		t.sent[i] = d
		return
	}
	t.sent = append(t.sent, d)
}

// lost records a value that could not be brought anywhere.
func (t *track) lost(v lifecycle.Value, missing api.Missing, why string) {
	t.deliver(v, delivery{Channel: "none", Value: v.String(), Note: why, Missing: missing})
}

// carried records a value that is in an answer.
func (t *track) carried(v lifecycle.Value, by string) {
	t.deliver(v, delivery{Channel: by, Value: v.String(), Applied: true})
}
