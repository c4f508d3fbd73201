package conductor

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// endColdStarts ends cold starts that have lasted as long as requested. In a cold start, a container has only slow
// memory nodes; afterwards it gets all its memory nodes. The agent measures the time from when it first sees the cold
// start, so a restart of the agent makes the cold start longer.
func (c *Conductor) endColdStarts() {
	for _, ended := range c.node.endedColdStarts(c.now()) {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Inform, Pod: ended.pod})
		w.facts.ColdStartsOver = ended.containers
		_, _ = c.run(w)
	}
}

// endedColdStart has the containers of one pod that have had their cold start for as long as requested.
type endedColdStart struct {
	pod        *lifecycle.Pod
	containers map[string]bool // by container id
}

// endedColdStarts returns the cold starts that have lasted as long as requested, by sandbox id. It locks n.mu.
func (n *node) endedColdStarts(now time.Time) map[string]endedColdStart {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]endedColdStart{}
	for id, seconds := range n.state.ColdStarts() {
		t, ctr := n.track(id), n.state.Container(id)
		if t.coldSince.IsZero() {
			t.coldSince = now
		}
		pod := n.state.Pod(ctr.PodID)
		if pod == nil || now.Sub(t.coldSince) < time.Duration(seconds)*time.Second {
			continue
		}
		if all[ctr.PodID].pod == nil {
			all[ctr.PodID] = endedColdStart{pod.Pod, map[string]bool{}}
		}
		all[ctr.PodID].containers[id] = true
	}
	return all
}
