// Package real runs a private containerd for tests: the real daemon, shim and runc, with the host's cgroups. Each
// private containerd has its own directories, sockets and cgroup parent, so any number can run at once.
//
//	c := real.Start(t)
//	pod := c.RunPod(real.PodSpec{QoS: real.Burstable})
//	web := c.CreateContainer(pod, real.ContainerSpec{Resources: &cri.LinuxContainerResources{CpuShares: 512}})
//	c.StartContainer(web)
//	c.FirstView(web).CPUsAllowed
//
// The package makes and removes the cgroups of pods, as a kubelet would. Methods end the test if there is an error. The
// methods with the prefix Try return the error instead, and any goroutine may call them.
package real
