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

// node is the decided state of the node. It also records which decided values are applied. The caller of a method must
// have locked mu, unless the method's comment says that the method locks it. No method does I/O.
type node struct {
	mu sync.Mutex // guards the fields below; never held across I/O

	state         *engine.State
	tracks        map[string]*track           // by container or sandbox id
	queue         *runtimesync.Queue          // the runtime's outdated copies
	runtimes      map[string]connectedRuntime // by name of the attachment
	cededFields   map[lifecycle.Field]bool    // see Tuning.Ceded
	failedCreates map[placement.Key]int       // creations in a row that failed after the agent's answer
	endedCreates  map[placement.Key]int       // failed creations that failedCreates does not count yet; the next creation of the container adds them
	conflicts     map[placement.Key]*conflict // the failed creations, for the status
	checkpoint    *record.Checkpoint          // the state that neither the runtime nor the kernel stores
	signer        *record.Signer              // signs the records of containers
	cgroupV2      bool                        // cgroups are of version 2
}

// track is what the conductor knows about one container in addition to the engine's state: whether its values are
// applied (results), and which values the runtime has stored (Copy). A pod's track has only results. node.track makes a
// track, and node.forget deletes it.
type track struct {
	runtimesync.Copy                            // the runtime's stored copy
	results          applyResults               // the results for the container's values; nil if there are none
	creationValues   map[lifecycle.Field]string // see noteCreatedWith
	cgroup           cgroupPath                 // the container's cgroup; empty until node.target is called
	noCgroupPath     bool                       // at its creation, the container had no cgroup path that the keeper can use
	coldSince        time.Time                  // when the agent first saw the container's cold start; zero for none
	undescribed      bool                       // the runtime listed the container, but could not describe it yet
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
func (t *track) find(v lifecycle.Value) (d applyResult, ok bool) {
	if t == nil {
		return applyResult{}, false
	}
	return t.results.find(v)
}

// noteCreatedWith stores a value that a container gets at its creation, if its field is one that some runtime does not
// report later. For a field with keys, it stores only the keys, separated by commas. The container's record has these
// values, too.
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
		if earlier := t.creationValues[v.Field]; earlier != "" {
			text = earlier + "," + v.Key
		}
	}
	t.creationValues[v.Field] = text
}

// createdWith reports whether the container got the value v at its creation, according to creationValues.
func (t *track) createdWith(v lifecycle.Value) bool {
	stored := t.creationValues[v.Field]
	switch {
	case stored == "" || !mayBeUnreported(v.Field):
		return false
	case v.Key != "":
		return slices.Contains(strings.Split(stored, ","), v.Key)
	}
	return stored == v.Text
}

// noteResult stores the result for a value. If another program sets the value, it stores the result of that program.
func (t *track) noteResult(v lifecycle.Value, d applyResult) {
	d = resultWithDelegation(t.delegation, v, d)
	d.Field, d.Key = v.Field, v.Key
	if i := t.results.indexOf(v); i >= 0 {
		t.results[i] = d
		return
	}
	t.results = append(t.results, d)
}

// noteUnapplied notes that a value could not be applied. missing is the kind of the reason, and why its text.
func (t *track) noteUnapplied(v lifecycle.Value, missing api.MissingReason, why string) {
	t.noteResult(v, applyResult{Channel: "none", Value: v.String(), Note: why, Missing: missing})
}

// noteAnswered notes that the agent's answer to the runtime has the value v, so this value counts as applied. channel
// says in the status how the value was sent, such as "nri update".
func (t *track) noteAnswered(v lifecycle.Value, channel string) {
	t.noteResult(v, applyResult{Channel: channel, Value: v.String(), Applied: true})
}
