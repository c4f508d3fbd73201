package bypass

import (
	"fmt"
	"maps"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// describeTimeout bounds the question about one pod or container: one that the
	// runtime hangs on must not keep all others waiting.
	describeTimeout = 2 * time.Second
	// mostHung is how many of them may take all of that while everything is asked about;
	// the rest is asked about afterwards.
	mostHung = 8
)

// askPod asks about a pod; nil where the runtime knows none. found are cgroups
// of containers by id, for runtimes that do not tell a pod's.
func (r *client) askPod(id string, found map[string]string) (*pod, error) {
	st, err := askWithin(r.ctx, describeTimeout, r.calls.PodSandboxStatus, "ask about a pod", &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if notFound(err) {
		return nil, nil //nolint:nilnil // no such pod is an answer
	}
	if err != nil {
		return nil, err
	}
	v, err := readVerbose(st.Info)
	if err != nil {
		r.log.Debug("little is known of a pod", logkey.Pod, id, logkey.Err, err)
	}
	p := newPod(id)
	p.reported = podIn(st.Status, v)
	if dir := found[id]; p.reported.CgroupParent == "" && dir != "" {
		p.reported.CgroupParent = "/" + path.Dir(dir)
	}
	p.stopped = st.Status.GetState() == cri.PodSandboxState_SANDBOX_NOTREADY
	return p, nil
}

// askContainer asks about a container; nil where the runtime knows none.
func (r *client) askContainer(id, podID, dir string) (*ctr, error) {
	st, err := askWithin(r.ctx, describeTimeout, r.calls.ContainerStatus, "ask about a container", &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if notFound(err) {
		return nil, nil //nolint:nilnil // no such container is an answer
	}
	if err != nil {
		return nil, err
	}
	v, err := readVerbose(st.Info)
	if err != nil {
		r.log.Debug("little is known of a container", logkey.Container, id, logkey.Err, err)
	}
	c := &ctr{id: id, reported: containerIn(st.Status, v, podID)}
	if c.reported.CgroupsPath == "" && dir != "" {
		c.reported.CgroupsPath = "/" + dir
	}
	c.ended = c.reported.State == lifecycle.StateStopped
	c.running = c.reported.State == lifecycle.StateRunning
	c.seen, c.inStatus = storedOf(&c.reported.Resources), st.Status.GetResources().GetLinux() != nil
	if c.inStatus {
		has := resourcesIn(st.Status.Resources.Linux)
		c.seen = storedOf(&has)
	}
	return c, nil
}

// resources asks for state and stored resources; nil where the runtime does not tell
// them.
func (r *client) resources(c *ctr) (lifecycle.State, *stored, error) {
	st, err := ask(r.ctx, r.calls.ContainerStatus, "ask about a container",
		&cri.ContainerStatusRequest{ContainerId: c.id, Verbose: !c.inStatus})
	if err != nil {
		return 0, nil, err
	}
	state := states[st.Status.GetState()]
	var has lifecycle.Resources
	if c.inStatus {
		if st.Status.GetResources().GetLinux() == nil {
			return state, nil, nil
		}
		has = resourcesIn(st.Status.Resources.Linux)
	} else {
		v, err := readVerbose(st.Info)
		if err != nil || v.RuntimeSpec == nil || v.RuntimeSpec.Linux == nil {
			return state, nil, nil //nolint:nilerr // it tells no resources, whatever the reason
		}
		has = resourcesOf(v.RuntimeSpec.Linux.Resources)
	}
	now := storedOf(&has)
	return state, &now, nil
}

// list asks for what there is: pods that are ready, and containers that have
// not ended.
func (r *client) list() ([]*cri.PodSandbox, []*cri.Container, error) {
	pods, err := ask(r.ctx, r.calls.ListPodSandbox, "list pods", &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return nil, nil, err
	}
	containers, err := ask(r.ctx, r.calls.ListContainers, "list containers", &cri.ListContainersRequest{})
	if err != nil {
		return nil, nil, err
	}
	live := containers.Containers[:0]
	for _, c := range containers.Containers {
		if c.State != cri.ContainerState_CONTAINER_EXITED {
			live = append(live, c)
		}
	}
	return pods.Items, live, nil
}

// survey asks about all that there is, some at a time.
type survey struct {
	*client
	group *errgroup.Group
	hung  atomic.Int32 // questions that took all their time
}

// describe asks about each of a list, unless too many questions took all their time.
// What the runtime cannot describe is as unread makes it. The result is complete when the
// survey's group has ended.
func describe[L, T any](s *survey, list []L, ask func(L) (*T, error), unread func(L, error) *T) []*T {
	all := make([]*T, len(list))
	for i, l := range list {
		s.group.Go(func() (err error) {
			if hung := s.hung.Load(); hung >= mostHung {
				err = fmt.Errorf("not asked yet: %d others were not answered within %v", hung, describeTimeout)
			} else if all[i], err = ask(l); codeOf(err) == codes.DeadlineExceeded {
				s.hung.Add(1)
			}
			if err != nil && !s.over(err) {
				all[i], err = unread(l, err), nil
			}
			return err
		})
	}
	return all
}

// over reports whether an error is that of the connection, not of what was asked
// about.
func (r *client) over(err error) bool { return lost(err) || r.ctx.Err() != nil }

// podUnread is a pod as a list tells it, where the runtime does not describe it. found
// are cgroups by id.
func (r *client) podUnread(l *cri.PodSandbox, found map[string]string, why error) *pod {
	p := newPod(l.Id)
	p.reported = &lifecycle.Pod{
		ID: l.Id, Name: l.GetMetadata().GetName(), UID: l.GetMetadata().GetUid(), Namespace: l.GetMetadata().GetNamespace(),
		Labels: maps.Clone(l.GetLabels()), Annotations: maps.Clone(l.GetAnnotations()), RuntimeHandler: l.GetRuntimeHandler(), Unread: why.Error(),
	}
	if dir := found[l.Id]; dir != "" {
		p.reported.CgroupParent = "/" + path.Dir(dir)
	}
	p.stopped = l.GetState() == cri.PodSandboxState_SANDBOX_NOTREADY
	r.logUnread(logkey.Pod, p.reported.Namespace+"/"+p.reported.Name, why)
	return p
}

// ctrUnread is podUnread of a container. What a runtime cannot tell the state of is
// taken for running: nothing of its is given away.
func (r *client) ctrUnread(l *cri.Container, dir string, why error) *ctr {
	c := &ctr{id: l.Id, blank: true, reported: &lifecycle.Container{
		ID: l.Id, PodID: l.GetPodSandboxId(), Name: l.GetMetadata().GetName(), State: states[l.GetState()], CreatedAt: l.GetCreatedAt(),
		Labels: maps.Clone(l.GetLabels()), Annotations: maps.Clone(l.GetAnnotations()), Unread: why.Error(),
	}}
	if c.reported.State == lifecycle.StateUnknown {
		c.reported.State = lifecycle.StateRunning
	}
	if dir != "" {
		c.reported.CgroupsPath = "/" + dir
	}
	c.running = c.reported.State == lifecycle.StateRunning
	c.ended = c.reported.State == lifecycle.StateStopped
	r.logUnread(logkey.Container, c.reported.Name, why)
	return c
}

func (r *client) logUnread(what, name string, why error) {
	r.log.Warn("the runtime lists something that it cannot describe: it keeps what it has, and the runtime is asked again", what, name, logkey.Err, why)
}
