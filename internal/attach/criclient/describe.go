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
	// maxConcurrent is the maximum number of verbose statuses that DescribeAll reads at the same time.
	maxConcurrent = 4
	// maxTimeouts is the number of timed-out calls after which DescribeAll requests no more statuses. It then describes
	// the remaining pods and containers by their list entries.
	maxTimeouts = 8
)

// Container is a container as the runtime describes it.
type Container struct {
	*lifecycle.Container
	// StatusResources are the resources in the status message itself, without the JSON that a verbose answer adds. The
	// field is nil if the status message has no resources.
	StatusResources *lifecycle.Resources
	// StateUnknown means that the runtime describes the container, but reports CONTAINER_UNKNOWN as its state.
	StateUnknown bool
}

// describedObject has the methods that are common to all list entries and statuses, both of pods and of containers.
type describedObject interface {
	GetId() string
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// sandbox has the methods that are common to a pod's list entry and a pod's status.
type sandbox interface {
	describedObject
	GetMetadata() *cri.PodSandboxMetadata
	GetRuntimeHandler() string
}

// podOf converts the list entry or the status of a pod to a lifecycle.Pod.
func podOf(s sandbox) *lifecycle.Pod {
	m := s.GetMetadata()
	return &lifecycle.Pod{
		ID: s.GetId(), Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(),
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// container has the methods that are common to a container's list entry and a container's status.
type container interface {
	describedObject
	GetMetadata() *cri.ContainerMetadata
	GetState() cri.ContainerState
	GetCreatedAt() int64
}

// containerOf converts the list entry or the status of a container to a lifecycle.Container. A container in an unknown
// state counts as running, so that no other container gets the CPUs of this container.
func containerOf(s container, podID string) *lifecycle.Container {
	c := &lifecycle.Container{
		ID: s.GetId(), PodID: podID, Name: s.GetMetadata().GetName(), State: containerStates[s.GetState()],
		Labels: s.GetLabels(), Annotations: s.GetAnnotations(), CreatedAt: s.GetCreatedAt(),
	}
	if c.State == lifecycle.StateUnknown {
		c.State, c.Undescribed = lifecycle.StateRunning, "the runtime reports the state of the container as CONTAINER_UNKNOWN"
	}
	return c
}

// Pod reads a pod's verbose status. For a pod that is not ready it returns an error for which NotFound is true.
func (c *Client) Pod(ctx context.Context, id string) (*lifecycle.Pod, error) {
	s, err := invoke(ctx, describeTimeout, c.calls.PodSandboxStatus, "read the status of pod "+id, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
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
	s, err := invoke(ctx, callTimeout, c.calls.PodSandboxStatus, "read the status of pod "+id, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	return s.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_READY, err
}

// status requests the status of a container. If verbose is true, the answer also contains the JSON that readVerbose
// reads.
func (c *Client) status(ctx context.Context, timeout time.Duration, id string, verbose bool) (*cri.ContainerStatusResponse, error) {
	return invoke(ctx, timeout, c.calls.ContainerStatus, "read the status of container "+id, &cri.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
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

// StoredResources reads a container's state and the resources that the runtime stores for the container. If inStatus is
// true, it reads the resources from the status message, otherwise from the JSON that a verbose answer adds. The
// resources are nil if the runtime does not report them there.
func (c *Client) StoredResources(ctx context.Context, id string, inStatus bool) (lifecycle.State, *lifecycle.Resources, error) {
	s, err := c.status(ctx, callTimeout, id, !inStatus)
	if err != nil {
		return 0, nil, err
	}
	stored := Resources(s.GetStatus().GetResources().GetLinux())
	if !inStatus {
		v, _ := readVerbose(s.GetInfo()) // after an error, v may have no resources, and stored is then nil
		stored = v.resources()
	}
	return containerStates[s.GetStatus().GetState()], stored, nil
}

// CgroupsPath reads the path of a container's cgroup. The cgroup possibly does not exist yet. CgroupsPath returns "" if
// the runtime does not report the path.
func (c *Client) CgroupsPath(ctx context.Context, id string) (string, error) {
	s, err := c.status(ctx, callTimeout, id, true)
	v, _ := readVerbose(s.GetInfo())
	return v.Spec.Linux.CgroupsPath, err
}

// PodFromList is for a pod whose status the runtime cannot return. It returns a pod with the fields of the pod's list
// entry, or nil if the pod was removed or is not ready. statusErr is the error of the failed status call.
func (c *Client) PodFromList(ctx context.Context, id string, statusErr error) (*lifecycle.Pod, error) {
	l, err := c.ListedPod(ctx, id)
	if l == nil || l.State != cri.PodSandboxState_SANDBOX_READY {
		return nil, err
	}
	p := podOf(l)
	p.Undescribed = statusErr.Error()
	return p, nil
}

// ContainerFromList is for a container whose status the runtime cannot return. It returns a container with the fields
// of the container's list entry, or nil if the container has ended or was removed. statusErr is the error of the failed
// status call.
func (c *Client) ContainerFromList(ctx context.Context, id string, statusErr error) (*lifecycle.Container, error) {
	l, err := c.ListedContainer(ctx, id)
	if l == nil || l.State == cri.ContainerState_CONTAINER_EXITED {
		return nil, err
	}
	out := containerOf(l, l.PodSandboxId)
	out.Undescribed = statusErr.Error()
	return out, nil
}

// timeouts counts the calls that timed out, and prevents further calls when maxTimeouts calls have timed out.
type timeouts struct{ timedOut atomic.Int32 }

// call makes a call and returns its error. If maxTimeouts calls have timed out already, it makes no call and returns an
// error.
func (p *timeouts) call(call func() error) error {
	if hung := p.timedOut.Load(); hung >= maxTimeouts {
		return fmt.Errorf("the agent has not requested this status from the runtime yet, because the runtime did not answer %d other calls within %v", hung, describeTimeout)
	}
	err := call()
	if status.Code(err) == codes.DeadlineExceeded {
		p.timedOut.Add(1)
	}
	return err
}

// DescribePod reads the status of a listed pod. It returns nil if the pod was removed or is not ready any more. If the
// runtime cannot return the status, DescribePod returns a pod with the fields of the list entry.
func (c *Client) DescribePod(ctx context.Context, id string) (*lifecycle.Pod, error) {
	return c.describePod(ctx, id, &timeouts{})
}

// describePod does the work of DescribePod. If limit has counted maxTimeouts timeouts, describePod does not request the
// status, and uses the list entry.
func (c *Client) describePod(ctx context.Context, id string, limit *timeouts) (p *lifecycle.Pod, err error) {
	err = limit.call(func() (err error) { p, err = c.Pod(ctx, id); return err })
	switch {
	case err == nil || ConnectionFailed(ctx, err):
		return p, err
	case NotFound(err):
		return nil, nil //nolint:nilnil // a removed pod is no error
	}
	return c.PodFromList(ctx, id, err)
}

// DescribeContainer reads the status of a listed container. The field Container of the result is nil if the container
// was removed. If the runtime cannot return the status, the result has the fields of the list entry.
func (c *Client) DescribeContainer(ctx context.Context, l ListItem) (Container, error) {
	return c.describeContainer(ctx, l, &timeouts{})
}

// describeContainer does the work of DescribeContainer. If limit has counted maxTimeouts timeouts, describeContainer
// does not request the status, and uses the list entry.
func (c *Client) describeContainer(ctx context.Context, l ListItem, limit *timeouts) (out Container, err error) {
	err = limit.call(func() (err error) { out, err = c.Container(ctx, l.ID, l.Pod); return err })
	switch {
	case err == nil || ConnectionFailed(ctx, err):
		return out, err
	case NotFound(err):
		return out, nil
	}
	unread, failed := c.ContainerFromList(ctx, l.ID, err)
	if failed != nil {
		unread = containerOf(&cri.Container{Id: l.ID, State: cri.ContainerState(l.State)}, l.Pod)
		unread.Name, unread.Undescribed = lifecycle.UnnamedContainer, err.Error()
	}
	return Container{Container: unread}, nil
}

// DescribeAll reads all ready pods and their containers that have not ended, in the order of the lists. If the runtime
// cannot describe a pod or container, DescribeAll uses the list entry, so that the container keeps its CPUs.
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
	return pods, matchPods(c.dropRemoved(ctrs), pods), nil
}

// dropRemoved drops the containers that were removed after DescribeAll read the lists. It logs which of the remaining
// containers the runtime cannot describe.
func (c *Client) dropRemoved(ctrs []Container) []Container {
	ctrs = slices.DeleteFunc(ctrs, func(c Container) bool { return c.Container == nil })
	for _, l := range ctrs {
		LogReadability(c.log, logkey.Container, l.ID, l.Undescribed, false)
	}
	return ctrs
}

// matchPods drops the containers whose pods were removed after DescribeAll read the lists. If the runtime cannot
// describe a pod, matchPods marks the pod's containers as undescribed too, because the fields of the pod's status are
// missing. It then derives the cgroup of the pod from the cgroup of one of the pod's containers.
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

// InheritUndescribed marks a container as undescribed if the runtime cannot describe the container's pod.
func InheritUndescribed(c *lifecycle.Container, p *lifecycle.Pod) {
	if p.Undescribed != "" && c.Undescribed == "" {
		c.Undescribed = "the runtime cannot describe the container's pod: " + p.Undescribed
	}
}
