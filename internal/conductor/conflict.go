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

// conflict is what is known of creations of a container that failed after the agent's answer. It is kept while the pod
// lives, so that a status has it also after a later creation succeeded.
type conflict struct {
	failed int
	// claimed are the fields that the agent set in the answers, with their keys.
	claimed []string
	// others are those of them that another plugin set in the container that started.
	others []string
}

// noteUndone counts a creation that failed after the agent's answer, if the runtime reports it as a container that
// ends: containerd 2.4 stops and removes it for each plugin that had answered. A container that the runtime has created
// is reported by PostCreateContainer first.
func (n *node) noteUndone(w *work) {
	ev := w.done.Event
	if ev.Kind != lifecycle.StopContainer && ev.Kind != lifecycle.RemoveContainer || !w.capabilities.OthersAnswer {
		return
	}
	if t := n.tracks[ev.Container.ID]; t != nil && t.CreatePending {
		t.CreatePending = false // the stop and the removal are of one failure
		n.undone[placement.Key{PodUID: ev.Pod.UID, Container: ev.Container.Name}]++
	}
}

// forgetCreations forgets the failed creations of pods, by UID.
func (n *node) forgetCreations(of func(uid string) bool) {
	maps.DeleteFunc(n.failedCreates, func(k placement.Key, _ int) bool { return of(k.PodUID) })
	maps.DeleteFunc(n.undone, func(k placement.Key, _ int) bool { return of(k.PodUID) })
	maps.DeleteFunc(n.conflicts, func(k placement.Key, _ *conflict) bool { return of(k.PodUID) })
}

// noteFailed notes creations of a container that failed after an answer that set some values. The event of the next
// creation reports it: a runtime gives no reason for a failure.
func (n *node) noteFailed(w *work, ctr *engine.Container, values []lifecycle.Value, failed int) {
	c := n.conflicts[ctr.Key]
	if failed == 0 || c == nil && len(values) == 0 { // an answer without values conflicts with nothing
		return
	}
	if c == nil {
		c = &conflict{}
		n.conflicts[ctr.Key] = c
	}
	c.failed += failed
	for _, v := range values {
		if s := v.Setting(); !slices.Contains(c.claimed, s) {
			c.claimed = append(c.claimed, s)
		}
	}
	w.done.Problems = append(w.done.Problems, *c.problem())
}

// noteStarted compares the container that starts after failed creations with the request. A field that the agent did
// not set, and that has another value now, is another plugin's. A creation that succeeded although the agent set its
// fields shows that no other plugin sets them, so the earlier failure had another cause.
func (n *node) noteStarted(ctr *engine.Container, now *lifecycle.Container) {
	c := n.conflicts[ctr.Key]
	switch {
	case c == nil || now == nil:
		return
	case n.failedCreates[ctr.Key] < maxFailedCreates:
		delete(n.conflicts, ctr.Key)
		return
	}
	c.others = nil
	requested, has := runtimesync.Of(&ctr.Pristine), runtimesync.Of(&now.Resources)
	for _, v := range n.state.Values(ctr) {
		text, set := has[v.Field]
		if setting := v.Setting(); v.Key == "" && set && text != requested[v.Field] && slices.Contains(c.claimed, setting) {
			c.others = append(c.others, setting)
		}
		if v.Field == lifecycle.Env && slices.ContainsFunc(now.Env, func(e string) bool { return strings.HasPrefix(e, v.Key+"=") }) {
			c.others = append(c.others, v.Setting())
		}
	}
}

// problem returns the trace of failed creations for users; nil if there were none.
func (c *conflict) problem() *lifecycle.Problem {
	if c == nil {
		return nil
	}
	times := fmt.Sprintf("%d creations of this container failed", c.failed)
	if c.failed == 1 {
		times = "a creation of this container failed"
	}
	p := &lifecycle.Problem{Key: nodeview.ConflictKey}
	if len(c.others) > 0 {
		p.Value = strings.Join(c.others, ", ")
		p.Reason = fmt.Sprintf("%s after the agent's answer: another NRI plugin sets %s, too", times, p.Value)
	} else {
		p.Value = strings.Join(c.claimed, ", ")
		p.Reason = fmt.Sprintf("%s after the agent's answer, perhaps because another NRI plugin sets a field of it, too (it set %s)", times, p.Value)
	}
	p.Then = "list the field in nri.cede, or remove it from the other plugin; the pod's events (kubectl describe pod) name plugin and field"
	return p
}
