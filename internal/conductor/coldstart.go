package conductor

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// endColdStarts ends cold starts that have lasted as long as requested, so that the container gets all its
// memory nodes. The time counts from when this agent first sees the cold start, so it starts anew after a restart.
func (c *Conductor) endColdStarts() {
	for _, ended := range c.node.coldStartsOver(c.now()) {
		w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Inform, Pod: ended.pod})
		w.facts.ColdStartsOver = ended.containers
		_, _ = c.run(w)
	}
}

// endedColdStart names the containers of a pod whose cold start has lasted long enough, by id.
type endedColdStart struct {
	pod        *lifecycle.Pod
	containers map[string]bool
}

// coldStartsOver returns the cold starts that have lasted long enough, by sandbox id. It takes the lock.
func (n *node) coldStartsOver(now time.Time) map[string]endedColdStart {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]endedColdStart{}
	for id, lasts := range n.state.ColdStarts() {
		t, ctr := n.track(id), n.state.Container(id)
		if t.coldSince.IsZero() {
			t.coldSince = now
		}
		pod := n.state.Pod(ctr.PodID)
		if pod == nil || now.Sub(t.coldSince) < time.Duration(lasts)*time.Second {
			continue
		}
		if all[ctr.PodID].pod == nil {
			all[ctr.PodID] = endedColdStart{pod.Pod, map[string]bool{}}
		}
		all[ctr.PodID].containers[id] = true
	}
	return all
}
