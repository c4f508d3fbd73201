package conductor

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Taker is a Carrier whose runtime does not take every value of the fields that
// it carries: a call with such a value would fail, or succeed without it. Those
// values go to the kernel alone.
type Taker interface {
	// Takes says why the runtime does not take a value; "" where it does.
	Takes(c runtimes.Call, v lifecycle.Value) (why string)
}

// refuses says why a value is not sent to a runtime with a call; "" where it is.
func refuses(to Carrier, c runtimes.Call, v lifecycle.Value) string {
	if t, ok := to.(Taker); ok {
		return t.Takes(c, v)
	}
	return ""
}

// keepAsked notes that the runtime's copy has what the runtime was asked for,
// where a value of ours is kept from it.
func (c *Conductor) keepAsked(ctr *engine.Container, f lifecycle.Field) {
	if asked, ok := copyFrom(&ctr.Pristine)[f]; ok {
		c.track(ctr.ID).store(f, asked)
	}
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

// aloneIfUnsaid does so for a value that the runtime's copy lacks and cannot get.
func (c *Conductor) aloneIfUnsaid(w *work, ctr *engine.Container, v lifecycle.Value) {
	to := w.from
	for _, rt := range c.runtimes {
		if to == nil {
			to = rt.from
		}
	}
	if to == nil || c.track(ctr.ID).stores(v) {
		return
	}
	if why := refuses(to, runtimes.Push, v); why != "" {
		c.track(ctr.ID).alone(v, why)
	}
}

// lowers reports whether a memory limit is not in force yet and so may be below
// what is in use. The kernel may refuse that, as may the runtime; in the answer
// to a kubelet's update that would fail the update.
func (t *track) lowers(v lifecycle.Value) bool {
	if v.Field != lifecycle.MemoryLimit || v.Int < 0 {
		return false
	}
	d, ok := t.of(v)
	return !ok || !d.applied || d.value != v.String()
}

// lowersWhy is the note of a value that lowers keeps from the runtime for now.
const lowersWhy = "not sent with the kubelet's update, which fails where more memory is in use"
