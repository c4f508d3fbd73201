package bypass

import (
	"path"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// again tells which hints are to be followed once more, and after how many tries at
// least, and which have been often enough.
func (p *pod) again(left hints) (again, over hints, tries int) {
	count := func(id string) bool {
		if p.tries == nil {
			p.tries = map[string]int{}
		}
		if p.tries[id]++; p.tries[id] > maxAsks {
			delete(p.tries, id)
			return false
		}
		tries = max(tries, p.tries[id])
		return true
	}
	if left.sandbox || p.reported == nil {
		if count("") {
			again.sandbox = true
		} else {
			over.sandbox = true
		}
	}
	for _, id := range left.order {
		into := &over
		if p.reported == nil && again.sandbox || p.reported != nil && count(id) {
			into = &again
		}
		into.add(id, left.ctrs[id])
	}
	return again, over, tries
}

// takeUnread takes in, as they are listed, a pod and containers that the runtime could
// not describe again and again: they run, and must be kept from what others own. Who
// was reported before is asked about with all others.
func (s *session) takeUnread(p *pod, left hints, why error) {
	if p.reported == nil {
		listed, err := ask(s.ctx, s.c.calls.ListPodSandbox, "find a pod", &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: p.id}})
		if err != nil || len(listed.Items) != 1 || listed.Items[0].GetState() == cri.PodSandboxState_SANDBOX_NOTREADY {
			return
		}
		s.reportPod(p, s.c.podUnread(listed.Items[0], nil, why).reported)
	}
	for _, id := range left.order {
		if p.ctrs[id] != nil || p.stopped {
			continue
		}
		listed, err := ask(s.ctx, s.c.calls.ListContainers, "find a container", &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
		if err != nil || len(listed.Containers) != 1 || listed.Containers[0].GetState() == cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		s.takeIn(p, s.c.ctrUnread(listed.Containers[0], dirOf(s.a.o.Tree, p, id, s.index.foundDir(id)), why))
	}
}

// dirOf is where the cgroup of a container is, if it was not found, "" where there is none.
func dirOf(tree *cgroup.Tree, p *pod, id, found string) string {
	if found != "" {
		return found
	}
	above, ok := p.dir()
	if !ok {
		return ""
	}
	names, _ := tree.Children(above, "cpuset") // none, where it is gone
	for _, name := range names {
		if cgroup.Named(name) == (cgroup.Name{Sort: cgroup.ContainerDir, ID: id}) {
			return path.Join(above, name)
		}
	}
	return ""
}

// rereadPod asks about a pod again that the runtime could not describe.
func (s *session) rereadPod(p *pod) error {
	n, err := s.c.askPod(p.id, nil)
	if err != nil || n == nil { // gone: its status says so, too
		return err
	}
	if n.reported.CgroupParent == "" {
		n.reported.CgroupParent = p.reported.CgroupParent
	}
	s.a.o.Log.Info("the runtime describes what it could not before", logkey.Pod, n.reported.Namespace+"/"+n.reported.Name)
	s.reportPod(p, n.reported)
	for _, id := range sortedIDs(p.ctrs) {
		s.hint(p.id, id, askStatus)
	}
	return nil
}

// reread asks about a container again that the runtime could not describe.
func (s *session) reread(p *pod, c *ctr) error {
	n, err := s.c.askContainer(c.id, p.id, c.dir)
	if err != nil || n == nil || n.ended || c.hasEnded() { // its end is seen by its status
		return err
	}
	s.a.o.Log.Info("the runtime describes what it could not before", logkey.Pod, p.reported.Namespace+"/"+p.reported.Name, logkey.Container, n.reported.Name)
	s.copies.Lock()
	c.seen, c.inStatus, c.blank = n.seen, n.inStatus, false
	s.copies.Unlock()
	c.reporting.Lock()
	c.reported = n.reported
	c.reporting.Unlock()
	if c.running = c.running || n.running; !c.running {
		s.keep(p, c)
		return nil // its start tells
	}
	s.keep(p, c)
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.started = true
	s.report(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p.reported, Container: c.reported})
	return nil
}
