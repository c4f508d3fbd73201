package conductor_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func (mo *model) runPod(class, asked, extended string) *modelPod {
	mo.n++
	uid := fmt.Sprintf("uid-%d", mo.n)
	p := &modelPod{asked: asked, Pod: lifecycle.Pod{
		ID: fmt.Sprintf("sandbox-%d", mo.n), Name: fmt.Sprintf("p%d", mo.n), UID: uid, Namespace: "default",
		Labels: map[string]string{}, Annotations: map[string]string{}, CgroupParent: "/kubepods/pod" + uid,
	}}
	if class != "" {
		p.Labels["koordinator.sh/qosClass"] = class
	}
	if asked != "" {
		p.Annotations["scheduling.koordinator.sh/resource-status"] = fmt.Sprintf(`{"cpuset":%q}`, asked)
	}
	if extended != "" {
		p.Annotations["node.koordinator.sh/extended-resource-spec"] = extended
	}
	if mo.dress != nil {
		mo.dress(p)
	}
	if mo.n%3 == 0 {
		p.Annotations[intent.RubikBurst] = fmt.Sprint(burst)
		if p.Labels["koordinator.sh/qosClass"] == "BE" {
			p.Annotations[intent.RubikPreemptable] = "true"
		}
	}
	must(mo.kernel.MkdirRunc("kubepods/pod" + uid))
	if mo.arrives != nil {
		mo.arrives(p)
	}
	mo.pods = append(mo.pods, p)
	mo.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&p.Pod)})
	return p
}

func (mo *model) create(p *modelPod, name string) *modelCtr {
	// The kubelet creates a container again only if the last creation failed or the container
	// has ended.
	p.ctrs = slices.DeleteFunc(p.ctrs, func(c *modelCtr) bool { return c.Name == name && !c.started && !c.ended })
	mo.n++
	c := &modelCtr{pod: p, Container: lifecycle.Container{
		ID: fmt.Sprintf("ctr-%d", mo.n), PodID: p.ID, Name: name, State: lifecycle.StateCreated,
		CgroupsPath: fmt.Sprintf("%s/ctr-%d", p.CgroupParent, mo.n), CreatedAt: int64(mo.n),
	}}
	c.Resources.CPU.Shares = lifecycle.Some[uint64](2)
	if p.Labels["koordinator.sh/qosClass"] != "BE" && mo.n%3 == 0 {
		c.Resources.CPU.Quota = lifecycle.Some(int64(50000 + mo.n))
	}
	if mo.dress != nil {
		c.Resources = p.wants
	}
	c.asked = c.Resources
	asked := clone(&c.Container)
	if mo.proxied { // the runtime has assigned neither before
		asked.ID, asked.CgroupsPath = "creating-"+c.ID, ""
	}
	mo.creating, mo.granted = c, mo.grants()
	ans, ok := mo.handle(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: asked})
	mo.creating = nil
	if !ok {
		return nil
	}
	if mo.faults.touchSilent && len(ans.Values) == 0 {
		ans.Values = []lifecycle.Value{{Field: lifecycle.Env, Key: "TRIMTAB", Text: "1"}}
	}
	mo.silent(c, ans)
	mo.apply(c, ans.Values)
	mo.others(ans)
	p.ctrs = append(p.ctrs, c)
	if mo.proxied {
		if between := mo.between; between != nil {
			mo.between = nil
			between()
		}
		mo.handle(lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: clone(&p.Pod), Container: clone(&c.Container), Former: asked.ID})
	}
	return c
}

func (mo *model) apply(c *modelCtr, values []lifecycle.Value) {
	for _, v := range values {
		if mo.faults.emptyCPUSet && v.Field == lifecycle.CPUSetCPUs {
			v.Text = ""
		}
		if mo.faults.dropValue && v.Field == lifecycle.CPUShares {
			continue
		}
		switch v.Field {
		case lifecycle.CPUShares:
			c.Resources.CPU.Shares = lifecycle.Some(uint64(v.Int))
		case lifecycle.CPUQuota:
			c.Resources.CPU.Quota = lifecycle.Some(v.Int)
		case lifecycle.MemoryLimit:
			c.Resources.Memory.Limit = lifecycle.Some(v.Int)
		case lifecycle.CPUSetCPUs:
			c.Resources.CPU.CPUs = v.Text
			if v.Text == "" {
				mo.wrong("I2: %s was answered an empty CPU list", c.ID)
			}
		case lifecycle.CPUSetMems:
			c.Resources.CPU.Mems = v.Text
		case lifecycle.Unified:
			c.Resources.Unified = map[string]string{v.Key: v.Text}
		case lifecycle.Env:
			c.Env = append(c.Env, v.Key+"="+v.Text)
		case lifecycle.Annotation:
			if !mo.faults.loseRecord && !mo.faults.forgetAsked {
				c.Annotations = map[string]string{v.Key: v.Text}
			}
		default:
			c.created = append(c.created, v.Setting()+" "+v.String())
		}
	}
}

func (mo *model) others(ans conductor.Answer) {
	for _, s := range ans.Others {
		for _, c := range mo.live() {
			if c.ID == s.Container {
				mo.apply(c, s.Values)
			}
		}
	}
}

func (c *modelCtr) dir() string { return strings.TrimPrefix(c.CgroupsPath, "/") }

// start makes the cgroup as runc does, sends the event, and then the first instruction runs.
func (mo *model) start(c *modelCtr) {
	if c.started || c.ended {
		return
	}
	mo.foreign = mo.beside()
	if !mo.proxied {
		must(mo.kernel.MkdirRunc(c.dir()))
		mo.toKernel(c)
	}
	mo.handle(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	if mo.proxied { // the start makes the cgroup, after the answer's changes
		must(mo.kernel.MkdirRunc(c.dir()))
		mo.toKernel(c)
	}
	mo.foreign = false
	c.started, c.State = true, lifecycle.StateRunning
	must(mo.kernel.SetTasks(c.dir(), 1))
	mo.checkExclusive("at the first instruction of " + c.ID)
	mo.checkQuotas("at the first instruction of " + c.ID)
	if mo.proxied {
		mo.handle(lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	}
	c.mems = mo.memory(c)
	mo.checkValues(c)
}

// toKernel writes a spec's resources, as an OCI runtime does.
func (mo *model) toKernel(c *modelCtr) {
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	r := c.Resources
	write := func(f lifecycle.Field, v lifecycle.Value) {
		v.Field = f
		_ = tree.Write(c.dir(), v) // a runtime would fail the start; the check afterwards shows that
	}
	if r.CPU.CPUs != "" {
		write(lifecycle.CPUSetCPUs, lifecycle.Value{Text: r.CPU.CPUs})
	}
	if r.CPU.Mems != "" {
		write(lifecycle.CPUSetMems, lifecycle.Value{Text: r.CPU.Mems})
	}
	if r.CPU.Shares.Set {
		write(lifecycle.CPUShares, lifecycle.Value{Int: int64(r.CPU.Shares.V)})
	}
	if r.CPU.Quota.Set {
		write(lifecycle.CPUQuota, lifecycle.Value{Int: r.CPU.Quota.V})
	}
	if r.Memory.Limit.Set {
		write(lifecycle.MemoryLimit, lifecycle.Value{Int: r.Memory.Limit.V})
	}
	for key, text := range r.Unified { // ignored in version 1
		if mo.version == cgroup.V2 {
			write(lifecycle.Unified, lifecycle.Value{Key: key, Text: text})
		}
	}
}

// update is UpdateContainerResources: the answer replaces the request, and the whole stored
// spec is written to the kernel, as in containerd.
func (mo *model) update(c *modelCtr, r lifecycle.Resources) {
	if mo.beside() {
		mo.updateUnasked(c, r)
		return
	}
	ans, ok := mo.handle(lifecycle.Event{
		Kind: lifecycle.UpdateContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container), Requested: clone(&r),
	})
	if !ok {
		return
	}
	if r.CPU.CPUs != "" {
		c.Resources.CPU.CPUs, c.asked.CPU.CPUs = r.CPU.CPUs, r.CPU.CPUs
	}
	if r.CPU.Quota.Set {
		c.Resources.CPU.Quota, c.asked.CPU.Quota = r.CPU.Quota, r.CPU.Quota
	}
	if r.CPU.Shares.Set {
		c.Resources.CPU.Shares, c.asked.CPU.Shares = r.CPU.Shares, r.CPU.Shares
	}
	mo.apply(c, ans.Values)
	mo.others(ans)
	if c.started && !c.ended {
		mo.toKernel(c)
		mo.checkExclusive("after an update of " + c.ID)
		mo.checkQuotas("after an update of " + c.ID)
		mo.checkValues(c)
	}
}

// updateUnasked is an update that the agent is notified of only afterwards.
func (mo *model) updateUnasked(c *modelCtr, r lifecycle.Resources) {
	mo.foreign = true
	for _, into := range []*lifecycle.Resources{&c.Resources, &c.asked} {
		if r.CPU.CPUs != "" {
			into.CPU.CPUs = r.CPU.CPUs
		}
		if r.CPU.Quota.Set {
			into.CPU.Quota = r.CPU.Quota
		}
		if r.CPU.Shares.Set {
			into.CPU.Shares = r.CPU.Shares
		}
	}
	live := c.started && !c.ended
	if live {
		mo.toKernel(c)
	}
	mo.handle(lifecycle.Event{
		Kind: lifecycle.UpdateContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container), Requested: clone(&r),
	})
	mo.foreign = false
	if live {
		mo.checkExclusive("after an update of " + c.ID)
		mo.checkQuotas("after an update of " + c.ID)
		mo.checkValues(c)
	}
}

func (mo *model) stop(c *modelCtr) {
	if c.ended {
		return
	}
	c.ended, c.State = true, lifecycle.StateStopped
	if c.started {
		must(mo.kernel.SetTasks(c.dir(), 0))
		must(mo.kernel.Rmdir(c.dir()))
	}
	ans, _ := mo.handle(lifecycle.Event{Kind: lifecycle.StopContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	mo.others(ans)
}

func (mo *model) remove(c *modelCtr) {
	mo.stop(c)
	c.pod.ctrs = slices.DeleteFunc(c.pod.ctrs, func(x *modelCtr) bool { return x == c })
	mo.handle(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
}

func (mo *model) stopPod(p *modelPod) {
	for _, c := range p.ctrs {
		mo.stop(c)
	}
	p.stopped = true
	if !mo.faults.keepGrant {
		mo.handle(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: clone(&p.Pod)})
	}
	mo.checkFree()
}

func (mo *model) removePod(p *modelPod) {
	mo.stopPod(p)
	mo.handle(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: clone(&p.Pod)})
	mo.pods = slices.DeleteFunc(mo.pods, func(x *modelPod) bool { return x == p })
}
