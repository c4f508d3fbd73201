package conductor

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// node is the decided state of the node. It also records which decided values are applied. Its methods run under mu
// and do no I/O; methods that take mu themselves say so.
type node struct {
	mu sync.Mutex // guards the fields below; never held across I/O

	state         *engine.State
	tracks        map[string]*track // by container or sandbox id
	queue         *runtimesync.Queue
	runtimes      map[string]connectedRuntime
	ceded         map[lifecycle.Field]bool
	failedCreates map[placement.Key]int // creations in a row that failed after our answer
	endedCreates  map[placement.Key]int // failed creations that the next creation will add to failedCreates
	conflicts     map[placement.Key]*conflict
	checkpoint    *record.Checkpoint
	signer        *record.Signer
	unified       bool // cgroups are of version 2
}

// track is what the conductor knows about one container in addition to the engine's state: the results for its
// values, and what the runtime knows. For a pod it has only the results. node.track makes it
// and node.forget drops it.
type track struct {
	runtimesync.Copy                            // the runtime's stored copy
	results          deliveries                 // the results for its values; nil if none was applied
	creationValues   map[lifecycle.Field]string // values that it was created with and that no runtime reports
	cgroup           cgroupPath
	noCgroupPath     bool      // its creation has no cgroup path that the keeper can use
	coldSince        time.Time // when its cold start was seen first; zero for none
	undescribed      bool      // the runtime listed it without a description
	// delegated says which of its values another program sets; nil for none.
	delegated *lifecycle.Delegation
}

// cgroupPath caches a container's cgroup, with the inputs that it was derived from.
type cgroupPath struct{ parent, path, dir string }

// track returns the track of a container or pod. If there is none, it adds an empty one.
func (n *node) track(id string) *track {
	t := n.tracks[id]
	if t == nil {
		t = &track{Copy: runtimesync.Copy{ID: id}}
		n.tracks[id] = t
	}
	return t
}

// find returns the result for a value; none if the track is nil.
func (t *track) find(v lifecycle.Value) (d delivery, ok bool) {
	if t == nil {
		return delivery{}, false
	}
	return t.results.find(v)
}

// noteCreatedWith remembers a value that a container is created with and that some runtime does not report
// later. The container's record stores the value, too. For a field with keys, it stores all keys, separated by commas.
func (t *track) noteCreatedWith(v lifecycle.Value) {
	if !mayBeUnreported(v.Field) || t.createdWith(v) {
		return
	}
	if t.creationValues == nil {
		t.creationValues = map[lifecycle.Field]string{}
	}
	text := v.Text
	if v.Key != "" {
		text = v.Key
		if had := t.creationValues[v.Field]; had != "" {
			text = had + "," + v.Key
		}
	}
	t.creationValues[v.Field] = text
}

// createdWith reports whether a container was created with a value that some runtime does not report.
func (t *track) createdWith(v lifecycle.Value) bool {
	given := t.creationValues[v.Field]
	switch {
	case given == "" || !mayBeUnreported(v.Field):
		return false
	case v.Key != "":
		return slices.Contains(strings.Split(given, ","), v.Key)
	}
	return given == v.Text
}

// noteResult notes the result for a value.
func (t *track) noteResult(v lifecycle.Value, d delivery) {
	d = setByOther(t.delegated, v, d)
	d.Field, d.Key = v.Field, v.Key
	if i := t.results.indexOf(v); i >= 0 {
		t.results[i] = d
		return
	}
	t.results = append(t.results, d)
}

// noteUnapplied notes that a value could not be applied.
func (t *track) noteUnapplied(v lifecycle.Value, missing api.MissingReason, why string) {
	t.noteResult(v, delivery{Channel: "none", Value: v.String(), Note: why, Missing: missing})
}

// noteAnswered notes a value that is in an answer.
func (t *track) noteAnswered(v lifecycle.Value, by string) {
	t.noteResult(v, delivery{Channel: by, Value: v.String(), Applied: true})
}
