package conductor

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// track is what is known of one container beyond the engine's state: what became
// of its values, and how far the runtime is. Of a pod it is the values alone.
// node.track makes it and node.forget drops it.
type track struct {
	sent   deliveries // what became of its values; nil where nothing was brought to it
	stored copyOf     // the runtime's stored copy
	// pending is what an update under way asked for and was answered with, else nil:
	// the runtime writes it some time after the answer.
	pending copyOf
	given   map[lifecycle.Field]string // what it was created with and no runtime reports
	cgroup  placed
	// createPending: its creation was answered, and the runtime may not know it yet;
	// passedOver: something was sent to it meanwhile.
	createPending, passedOver bool
	noCgroupPath              bool // its creation named no cgroup that can be used
	undescribed               bool // the runtime listed it without a description
	recorded                  bool // its pristine resources are known from a record
}

// placed is a container's cgroup, and what it follows from.
type placed struct{ parent, path, dir string }

// track returns what is known of a container or pod; it makes what it does not find.
func (n *node) track(id string) *track {
	t := n.tracks[id]
	if t == nil {
		t = &track{}
		n.tracks[id] = t
	}
	return t
}

// of returns what became of a value. Nothing is known of a nil track.
func (t *track) of(v lifecycle.Value) (d delivery, ok bool) {
	if t == nil {
		return delivery{}, false
	}
	return t.sent.of(slotOf(v))
}

// stores reports whether the runtime's stored copy has a value.
func (t *track) stores(v lifecycle.Value) bool { return t.stored[v.Field] == v.String() }

// store notes that the runtime's stored copy has a text for a field.
func (t *track) store(f lifecycle.Field, text string) {
	if t.stored == nil {
		t.stored = copyOf{}
	}
	t.stored[f] = text
}

// give remembers a value that a container is created with and no runtime reports
// later; its record has it too.
func (t *track) give(v lifecycle.Value) {
	if !untold(v.Field) {
		return
	}
	if t.given == nil {
		t.given = map[lifecycle.Field]string{}
	}
	t.given[v.Field] = v.Text
}

func (t *track) deliver(v lifecycle.Value, d delivery) { t.sent = t.sent.with(slotOf(v), d) }

// lost records a value that could not be brought anywhere.
func (t *track) lost(v lifecycle.Value, missing api.Missing, why string) {
	t.deliver(v, delivery{channel: "none", value: v.String(), note: why, missing: missing})
}

// carried records a value that is in an answer.
func (t *track) carried(v lifecycle.Value, by string) {
	t.deliver(v, delivery{channel: by, value: v.String(), applied: true})
}

// alone notes why a value is in the kernel alone.
func (t *track) alone(v lifecycle.Value, why string) {
	d, ok := t.of(v)
	if !ok || d.value != v.String() {
		d = delivery{channel: "kernel", value: v.String(), missing: api.NotYet, note: "not written yet"}
	}
	d.alone = why
	t.deliver(v, d)
}
