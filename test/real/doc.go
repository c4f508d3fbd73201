// Package real runs a private containerd for tests: the real daemon, shim and runc with the host's cgroups, below
// directories, sockets and a cgroup parent of one test. Any number can run at once.
//
//	c := real.Start(t)
//	pod := c.RunPod(real.PodSpec{QoS: real.Burstable})
//	web := c.CreateContainer(pod, real.ContainerSpec{Resources: &cri.LinuxContainerResources{CpuShares: 512}})
//	c.StartContainer(web)
//	c.FirstView(web).CPUsAllowed
//
// In place of the kubelet the harness makes and removes pod-level cgroups. Methods end the test on an error; their Try
// forms return it and are safe for any goroutine.
package real
