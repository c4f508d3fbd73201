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
	tracks        map[string]*track  // by container or sandbox id
	queue         *runtimesync.Queue // the runtime's outdated copies
	runtimes      map[string]connectedRuntime
	cededFields   map[lifecycle.Field]bool
	failedCreates map[placement.Key]int       // creations in a row that failed after the agent's answer
	endedCreates  map[placement.Key]int       // failed creations that the next creation adds to failedCreates
	conflicts     map[placement.Key]*conflict // the failed creations of containers
	checkpoint    *record.Checkpoint
	signer        *record.Signer
	cgroupV2      bool // cgroups are of version 2
}

// track is what the conductor knows about one container in addition to the engine's state: the results for the
// container's values, and the values that the runtime has stored. A pod's track has only the results. node.track
// makes a track, and node.forget deletes it.
type track struct {
	runtimesync.Copy                            // the runtime's stored copy
	results          deliveries                 // the results for the container's values; nil if there are none
	creationValues   map[lifecycle.Field]string // see noteCreatedWith
	cgroup           cgroupPath
	noCgroupPath     bool      // at its creation, the container had no cgroup path that the keeper can use
	coldSince        time.Time // when the agent first saw the container's cold start; zero for none
	undescribed      bool      // the runtime listed the container without a description
	// delegation says which values of the container another program sets; nil for none.
	delegation *lifecycle.Delegation
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

// find returns the result for a value. A nil track has no results.
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
	d = setByOther(t.delegation, v, d)
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

// noteAnswered notes that an answer has a value, which counts as applied. by names the channel for the status.
func (t *track) noteAnswered(v lifecycle.Value, by string) {
	t.noteResult(v, delivery{Channel: by, Value: v.String(), Applied: true})
}
