package conductor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// conflict records the creations of a container that failed after the agent's answer. The conductor keeps it while the
// pod lives, so that the status still shows the failures when a later creation has succeeded.
type conflict struct {
	failedCreates int // the number of failed creations
	// setByAgent lists the fields that the agent set in the answers, with their keys (such as "env PATH").
	setByAgent []string
	// setByOthers lists the fields of setByAgent that another plugin set in the container that started.
	setByOthers []string
}

// noteFailedAfterAnswer counts a creation that failed after the agent's answer. After such a failure, containerd 2.4
// sends the events StopContainer and RemoveContainer of the container to each plugin that had answered. If a creation
// succeeds, PostCreateContainer comes before these events.
func (n *node) noteFailedAfterAnswer(w *work) {
	ev := w.report.Event
	if ev.Kind != lifecycle.StopContainer && ev.Kind != lifecycle.RemoveContainer || !w.capabilities.OthersAnswer {
		return
	}
	if t := n.tracks[ev.Container.ID]; t != nil && t.CreatePending {
		t.CreatePending = false // one failure causes a stop and a removal, and counts once
		n.endedCreates[placement.Key{PodUID: ev.Pod.UID, Container: ev.Container.Name}]++
	}
}

// forgetCreations forgets the failed creations of the pods whose UID matches.
func (n *node) forgetCreations(matches func(uid string) bool) {
	maps.DeleteFunc(n.failedCreates, func(k placement.Key, _ int) bool { return matches(k.PodUID) })
	maps.DeleteFunc(n.endedCreates, func(k placement.Key, _ int) bool { return matches(k.PodUID) })
	maps.DeleteFunc(n.conflicts, func(k placement.Key, _ *conflict) bool { return matches(k.PodUID) })
}

// noteFailedCreations notes that creations of a container failed after an answer that set values. The runtime gives no
// reason for such a failure, so noteFailedCreations adds a problem to w, the event of the next creation.
func (n *node) noteFailedCreations(w *work, ctr *engine.Container, values []lifecycle.Value, failed int) {
	c := n.conflicts[ctr.Key]
	if failed == 0 || c == nil && len(values) == 0 { // an answer without values conflicts with nothing
		return
	}
	if c == nil {
		c = &conflict{}
		n.conflicts[ctr.Key] = c
	}
	c.failedCreates += failed
	for _, v := range values {
		if s := v.Setting(); !slices.Contains(c.setByAgent, s) {
			c.setByAgent = append(c.setByAgent, s)
		}
	}
	w.report.Problems = append(w.report.Problems, *c.problem())
}

// noteStarted runs when a container starts, and finds out why earlier creations of the container failed. If there were
// fewer than maxFailedCreates failures, the agent's last answer still set the fields in setByAgent, and yet the
// creation succeeded. So no other plugin sets these fields, and the failures had another cause: noteStarted forgets the
// conflict. After maxFailedCreates failures, the agent's last answer set none of these fields. If such a field now
// differs from the kubelet's request, another plugin has set the field.
func (n *node) noteStarted(ctr *engine.Container, started *lifecycle.Container) {
	c := n.conflicts[ctr.Key]
	switch {
	case c == nil || started == nil:
		return
	case n.failedCreates[ctr.Key] < maxFailedCreates:
		delete(n.conflicts, ctr.Key)
		return
	}
	c.setByOthers = nil
	requested, has := runtimesync.FieldTextsOf(&ctr.Pristine), runtimesync.FieldTextsOf(&started.Resources)
	for _, v := range n.state.Values(ctr) {
		text, set := has[v.Field]
		if setting := v.Setting(); v.Key == "" && set && text != requested[v.Field] && slices.Contains(c.setByAgent, setting) {
			c.setByOthers = append(c.setByOthers, setting)
		}
		if v.Field == lifecycle.Env && slices.ContainsFunc(started.Env, func(e string) bool { return strings.HasPrefix(e, v.Key+"=") }) {
			c.setByOthers = append(c.setByOthers, v.Setting())
		}
	}
}

// problem describes the failed creations for users; nil if there were none.
func (c *conflict) problem() *lifecycle.Problem {
	if c == nil {
		return nil
	}
	times := fmt.Sprintf("%d creations of this container failed", c.failedCreates)
	if c.failedCreates == 1 {
		times = "a creation of this container failed"
	}
	p := &lifecycle.Problem{Key: nodeview.ConflictKey}
	if len(c.setByOthers) > 0 {
		p.Value = strings.Join(c.setByOthers, ", ")
		p.Reason = fmt.Sprintf("%s after the agent's answer: another NRI plugin sets %s, too", times, p.Value)
	} else {
		p.Value = strings.Join(c.setByAgent, ", ")
		p.Reason = fmt.Sprintf("%s after the agent's answer, perhaps because another NRI plugin also sets one of these fields: %s", times, p.Value)
	}
	p.Then = "list the field in nri.cede, or remove it from the other plugin; the pod's events (kubectl describe pod) name plugin and field"
	return p
}
