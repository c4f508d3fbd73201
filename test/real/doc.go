// Package real runs a private containerd for tests: the real daemon, the real shim, the real runc and the host's own
// cgroups, below folders, sockets and a cgroup parent that belong to one test alone. Any number can run at once.
//
//	c := real.Start(t)
//	pod := c.RunPod(real.PodSpec{QoS: real.Burstable})
//	web := c.CreateContainer(pod, real.ContainerSpec{Resources: &cri.LinuxContainerResources{CpuShares: 512}})
//	c.StartContainer(web)
//	c.FirstView(web).CPUsAllowed
//
// The harness plays the kubelet as far as cgroups go: it makes the pod-level ones and removes them. Methods end the
// test on an error; their Try forms return it and may be called from any goroutine. Nothing here judges a policy.
package real
