package criclient

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

const (
	// maxConcurrent is how many verbose statuses DescribeAll reads at the same time.
	maxConcurrent = 4
	// maxTimeouts is how many calls may time out in DescribeAll. After that, DescribeAll requests no other status, and
	// describes the other pods and containers by their list entries.
	maxTimeouts = 8
)

// Container is a container as the runtime describes it.
type Container struct {
	*lifecycle.Container
	// StatusResources are the resources in the container's plain status, or nil if the plain status has none.
	StatusResources *lifecycle.Resources
	// StateUnknown means that the runtime describes the container, but reports CONTAINER_UNKNOWN as its state.
	StateUnknown bool
}

// describedObject has the methods that list entries and statuses of pods and containers share.
type describedObject interface {
	GetId() string
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// sandbox has the methods that list entries and statuses of pods share.
type sandbox interface {
	describedObject
	GetMetadata() *cri.PodSandboxMetadata
	GetRuntimeHandler() string
}

func podOf(s sandbox) *lifecycle.Pod {
	m := s.GetMetadata()
	return &lifecycle.Pod{
		ID: s.GetId(), Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(),
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// container has the methods that list entries and statuses of containers share.
type container interface {
	describedObject
	GetMetadata() *cri.ContainerMetadata
	GetState() cri.ContainerState
	GetCreatedAt() int64
}

// containerOf converts a container from a list entry or status. A container whose state is unknown counts as running,
// so that no other container gets its CPUs.
func containerOf(s container, pod string) *lifecycle.Container {
	c := &lifecycle.Container{
		ID: s.GetId(), PodID: pod, Name: s.GetMetadata().GetName(), State: containerStates[s.GetState()],
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(), CreatedAt: s.GetCreatedAt(),
	}
	if c.State == lifecycle.StateUnknown {
		c.State, c.Undescribed = lifecycle.StateRunning, "the runtime reports the state of the container as CONTAINER_UNKNOWN"
	}
	return c
}

// Pod reads a pod's verbose status. For a pod that is not ready it returns an error for which NotFound is true.
func (c *Client) Pod(ctx context.Context, id string) (*lifecycle.Pod, error) {
	s, err := ask(ctx, describeTimeout, c.calls.PodSandboxStatus, "ask for pod "+id, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err == nil && s.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY {
		err = status.Errorf(codes.NotFound, "pod %s is not ready", id)
	}
	if err != nil {
		return nil, err
	}
	v, err := readVerbose(s.GetInfo())
	if err != nil {
		c.log.Debug("the agent cannot read a pod's verbose status; it uses the plain status", logkey.Pod, id, logkey.Err, err)
	}
	p := podOf(s.GetStatus())
	v.addToPod(p)
	return p, nil
}

// Ready reads whether a pod is ready.
func (c *Client) Ready(ctx context.Context, id string) (bool, error) {
	s, err := ask(ctx, callTimeout, c.calls.PodSandboxStatus, "ask for pod "+id, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	return s.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_READY, err
}

func (c *Client) status(ctx context.Context, within time.Duration, id string, verbose bool) (*cri.ContainerStatusResponse, error) {
	return ask(ctx, within, c.calls.ContainerStatus, "ask for container "+id, &cri.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// Container reads a container's verbose status. pod is the id of the container's pod, or "" if it is unknown.
func (c *Client) Container(ctx context.Context, id, pod string) (Container, error) {
	s, err := c.status(ctx, describeTimeout, id, true)
	if err != nil {
		return Container{}, err
	}
	v, err := readVerbose(s.GetInfo())
	if err != nil {
		c.log.Debug("the agent cannot read a container's verbose status; it uses the plain status", logkey.Container, id, logkey.Err, err)
	}
	out := Container{
		Container: containerOf(s.GetStatus(), cmp.Or(pod, v.SandboxID)), StatusResources: Resources(s.GetStatus().GetResources().GetLinux()),
		StateUnknown: s.GetStatus().GetState() == cri.ContainerState_CONTAINER_UNKNOWN,
	}
	if out.StatusResources != nil {
		out.Resources = *out.StatusResources
	}
	v.addToContainer(out.Container)
	return out, nil
}

// StoredResources reads a container's state and the resources that the runtime stores for it. The resources are nil if
// the runtime does not report them. inStatus means that the plain status contains them.
func (c *Client) StoredResources(ctx context.Context, id string, inStatus bool) (lifecycle.State, *lifecycle.Resources, error) {
	s, err := c.status(ctx, callTimeout, id, !inStatus)
	if err != nil {
		return 0, nil, err
	}
	has := Resources(s.GetStatus().GetResources().GetLinux())
	if !inStatus {
		v, _ := readVerbose(s.GetInfo()) // a verbose status that cannot be read has no resources
		has = v.resources()
	}
	return containerStates[s.GetStatus().GetState()], has, nil
}

// CgroupsPath reads the path of a container's cgroup, which may not exist yet. It returns "" if the runtime does
// not report the path.
func (c *Client) CgroupsPath(ctx context.Context, id string) (string, error) {
	s, err := c.status(ctx, callTimeout, id, true)
	v, _ := readVerbose(s.GetInfo())
	return v.Spec.Linux.CgroupsPath, err
}

// PodFromList returns a pod as its list entry describes it. It is for a pod whose status the runtime cannot return. why
// is the error of the status call. PodFromList returns nil if the pod was removed or is not ready.
func (c *Client) PodFromList(ctx context.Context, id string, why error) (*lifecycle.Pod, error) {
	l, err := c.ListedPod(ctx, id)
	if l == nil || l.State != cri.PodSandboxState_SANDBOX_READY {
		return nil, err
	}
	p := podOf(l)
	p.Undescribed = why.Error()
	return p, nil
}

// ContainerFromList returns a container as its list entry describes it, or nil if the container has ended or was
// removed. why is the error of the status call.
func (c *Client) ContainerFromList(ctx context.Context, id string, why error) (*lifecycle.Container, error) {
	l, err := c.ListedContainer(ctx, id)
	if l == nil || l.State == cri.ContainerState_CONTAINER_EXITED {
		return nil, err
	}
	out := containerOf(l, l.PodSandboxId)
	out.Undescribed = why.Error()
	return out, nil
}

// timeouts counts the calls that timed out, and prevents further calls after maxTimeouts.
type timeouts struct{ timedOut atomic.Int32 }

// ask makes a call, unless too many calls have timed out.
func (p *timeouts) ask(call func() error) error {
	if hung := p.timedOut.Load(); hung >= maxTimeouts {
		return fmt.Errorf("the agent has not asked the runtime for this status yet, because %d other calls to the runtime had no answer within %v", hung, describeTimeout)
	}
	err := call()
	if status.Code(err) == codes.DeadlineExceeded {
		p.timedOut.Add(1)
	}
	return err
}

// DescribePod reads the status of a listed pod, or returns nil if the pod was removed. If the runtime cannot describe
// the pod, DescribePod returns it as its list entry describes it.
func (c *Client) DescribePod(ctx context.Context, id string) (*lifecycle.Pod, error) {
	return c.describePod(ctx, id, &timeouts{})
}

func (c *Client) describePod(ctx context.Context, id string, limit *timeouts) (p *lifecycle.Pod, err error) {
	err = limit.ask(func() (err error) { p, err = c.Pod(ctx, id); return err })
	switch {
	case err == nil || ConnectionFailed(ctx, err):
		return p, err
	case NotFound(err):
		return nil, nil //nolint:nilnil // no such pod is an answer
	}
	return c.PodFromList(ctx, id, err)
}

// DescribeContainer does for a container what DescribePod does for a pod. The field Container is nil if the container
// was removed.
func (c *Client) DescribeContainer(ctx context.Context, l ListItem) (Container, error) {
	return c.describeContainer(ctx, l, &timeouts{})
}

func (c *Client) describeContainer(ctx context.Context, l ListItem, limit *timeouts) (out Container, err error) {
	err = limit.ask(func() (err error) { out, err = c.Container(ctx, l.ID, l.Pod); return err })
	switch {
	case err == nil || ConnectionFailed(ctx, err):
		return out, err
	case NotFound(err):
		return out, nil
	}
	unread, failed := c.ContainerFromList(ctx, l.ID, err)
	if failed != nil {
		unread = containerOf(&cri.Container{Id: l.ID, State: cri.ContainerState(l.State)}, l.Pod)
		unread.Name, unread.Undescribed = lifecycle.Unnamed, err.Error()
	}
	return Container{Container: unread}, nil
}

// DescribeAll reads all ready pods and their containers that have not ended, in the order of the lists. If the runtime
// cannot describe a pod or container, DescribeAll uses its list entry, so that a container keeps the CPUs that it owns.
func (c *Client) DescribeAll(ctx context.Context) (pods []*lifecycle.Pod, ctrs []Container, err error) {
	listed, listedCtrs, err := c.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	var limit timeouts
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	pods, ctrs = make([]*lifecycle.Pod, len(listed)), make([]Container, len(listedCtrs))
	isReady := map[string]bool{}
	for i, l := range listed {
		if isReady[l.ID] = l.State == StateReady; isReady[l.ID] {
			group.Go(func() (err error) { pods[i], err = c.describePod(ctx, l.ID, &limit); return err })
		}
	}
	for i, l := range listedCtrs {
		if isReady[l.Pod] && l.State != StateExited {
			group.Go(func() (err error) { ctrs[i], err = c.describeContainer(ctx, l, &limit); return err })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *lifecycle.Pod) bool { return p == nil })
	for _, p := range pods {
		LogReadability(c.log, logkey.Pod, p.Namespace+"/"+p.Name, p.Undescribed, false)
	}
	return pods, matchPods(c.logUndescribed(ctrs), pods), nil
}

// logUndescribed drops the containers that were removed in the meantime, and logs those that the runtime cannot
// describe.
func (c *Client) logUndescribed(ctrs []Container) []Container {
	ctrs = slices.DeleteFunc(ctrs, func(c Container) bool { return c.Container == nil })
	for _, l := range ctrs {
		LogReadability(c.log, logkey.Container, l.ID, l.Undescribed, false)
	}
	return ctrs
}

// matchPods drops the containers whose pods were removed in the meantime. If the runtime cannot describe a pod,
// matchPods marks the pod's containers as undescribed, because they lack what the pod's status contains. It derives the
// cgroup of such a pod from the cgroups of its containers.
func matchPods(ctrs []Container, pods []*lifecycle.Pod) []Container {
	byID := make(map[string]*lifecycle.Pod, len(pods))
	for _, p := range pods {
		byID[p.ID] = p
	}
	ctrs = slices.DeleteFunc(ctrs, func(c Container) bool { return byID[c.PodID] == nil })
	for _, c := range ctrs {
		p := byID[c.PodID]
		if p.Undescribed == "" {
			continue
		}
		InheritUndescribed(c.Container, p)
		if c.CgroupsPath == "" {
			continue
		}
		if slice, _, systemd := strings.Cut(c.CgroupsPath, ":"); systemd {
			p.CgroupParent = slice
		} else {
			p.CgroupParent = path.Dir(c.CgroupsPath)
		}
	}
	return ctrs
}

// InheritUndescribed marks a container as undescribed if the runtime cannot describe its pod.
func InheritUndescribed(c *lifecycle.Container, p *lifecycle.Pod) {
	if p.Undescribed != "" && c.Undescribed == "" {
		c.Undescribed = "the status of the container's pod: " + p.Undescribed
	}
}
