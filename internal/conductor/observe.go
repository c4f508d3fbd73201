package conductor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// observer is set in mode observe: everything is decided, nothing is changed. Answers are empty,
// the keeper writes nothing (keeper.Observe), and no runtime gets an update.
type observer struct {
	mu     sync.Mutex // guards the fields below; locked after the node
	last   map[setting]keeper.Comparison
	differ map[string]string // the reported differences, by owner
}

// setting is a setting of a container or pod.
type setting struct {
	owner string
	field lifecycle.Field
	key   string
}

func settingOf(owner string, v lifecycle.Value) setting { return setting{owner, v.Field, v.Key} }

// observedCarrier is an attachment in mode observe. Its containers carry no record, so the records of
// decisions stay in memory.
type observedCarrier struct{ Carrier }

// Capabilities returns the attachment's capabilities, without annotations at a creation.
func (o observedCarrier) Capabilities() Capabilities {
	can := o.Carrier.Capabilities()
	can.Create = can.Create.Without(lifecycle.Annotation)
	return can
}

// carrierInMode returns the attachment as it is used in this mode.
func (c *Conductor) carrierInMode(from Carrier) Carrier {
	if c.observe == nil || from == nil {
		return from
	}
	return observedCarrier{from}
}

// answerFor returns the answer for the attachment: in mode observe an empty one.
func (o *observer) answerFor(a Answer, err error) (Answer, error) {
	if o == nil {
		return a, err
	}
	return Answer{Op: a.Op}, nil
}

// Compare compares the decided values with the values on the node. It does nothing in mode enforce.
func (c *Conductor) Compare() {
	if c.observe == nil {
		return
	}
	all := map[setting]keeper.Comparison{}
	for _, r := range c.keeper.Compare() {
		all[settingOf(r.Target.Owner, r.Value)] = r
	}
	c.observe.mu.Lock()
	defer c.observe.mu.Unlock()
	c.observe.last = all
}

// result is the result for a value in mode observe: whether the node has it.
func (o *observer) result(owner string, v lifecycle.Value) delivery {
	o.mu.Lock()
	r, compared := o.last[settingOf(owner, v)]
	o.mu.Unlock()
	d := delivery{Field: v.Field, Key: v.Key, Value: v.String(), Channel: "observe"}
	switch {
	case compared && r.Value.String() == d.Value && r.Same:
		d.Applied, d.Note = true, "the node already has this value; the agent wrote nothing"
	case compared && r.Value.String() == d.Value:
		d.Missing, d.NodeValue, d.Note = api.Differs, r.KernelText, fmt.Sprintf("the node has %s; the agent writes nothing (mode: observe)", cmp.Or(r.KernelText, "nothing"))
	case route.IsCopied(v.Field) || v.Field == lifecycle.Unified:
		d.Missing, d.Note = api.NotYet, "not compared yet; the agent writes nothing (mode: observe)"
	default:
		d.Missing, d.Note = api.NotCompared, "cannot be compared; the agent writes nothing (mode: observe)"
	}
	return d
}

// counts returns how many values were compared, and how many of them differ on the node, in total and by setting.
func (o *observer) counts() *api.Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := &api.Observed{Compared: len(o.last), Settings: map[string]int{}}
	for _, r := range o.last {
		if name := r.Setting(); r.Same {
			out.Settings[name] += 0
		} else {
			out.Differ++
			out.Settings[name]++
		}
	}
	return out
}

// reportDifferences compares the values again. For each container and pod whose differences have changed since the last
// call, it writes one entry to the log and one to the journal. If a container or pod no longer differs, it writes only
// to the journal.
func (c *Conductor) reportDifferences() {
	if c.observe == nil {
		return
	}
	c.Compare()
	now := map[string][]string{}
	c.observe.mu.Lock()
	for _, r := range c.observe.last {
		if owner := r.Target.Owner; !r.Same {
			now[owner] = append(now[owner], fmt.Sprintf("%s: the node has %s, Trimtab would set %s", r.Value.Setting(), cmp.Or(r.KernelText, "nothing"), r.Value.String()))
		}
	}
	before := c.observe.differ
	c.observe.differ = make(map[string]string, len(now))
	var changed []string
	for owner, texts := range now {
		slices.Sort(texts)
		c.observe.differ[owner] = strings.Join(texts, "\n")
		if before[owner] != c.observe.differ[owner] {
			changed = append(changed, owner)
		}
	}
	var ended []string
	for _, owner := range slices.Sorted(maps.Keys(before)) {
		if now[owner] == nil {
			ended = append(ended, owner)
		}
	}
	c.observe.mu.Unlock()
	slices.Sort(changed)
	for _, owner := range changed {
		c.log.Info("the node differs from what Trimtab would do", append(c.reports.OwnerAttrs(owner), logkey.Changed, now[owner])...)
		c.reports.ReportDifferences(owner, now[owner])
	}
	for _, owner := range ended {
		c.reports.ReportDifferences(owner, nil)
	}
}

// applyResult returns the result for a value of a container or pod, for a view of the node.
func (c *Conductor) applyResult(owner string, v lifecycle.Value) (nodeview.ApplyResult, bool) {
	if c.observe != nil {
		return c.observe.result(owner, v), true
	}
	return c.node.tracks[owner].find(v)
}
