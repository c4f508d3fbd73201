// Package vm gives each test its own virtual machine (the guest). QEMU emulates the processors. The guest has a Debian
// kernel and a running containerd. The test chooses cgroup v1 or v2, busybox or systemd, and the numbers of sockets,
// dies, threads and NUMA nodes.
//
//	func TestMain(m *testing.M) { vm.Main(m) }
//
//	func TestCpuset(t *testing.T) {
//		m := vm.Start(t, vm.Guest{Topology: vm.FourNodes, Kernel: "6.12"}) // takes under a second if the cache has the snapshot
//		m.Run("mkdir", "/sys/fs/cgroup/a")
//		m.Sh("echo 0-1 > /sys/fs/cgroup/a/cpuset.cpus")           // ends the test if it fails
//		if got := m.Read("/sys/fs/cgroup/a/cpuset.cpus"); got != "0-1" { … }
//		r, err := m.Exec(ctx, "/tmp/prog", "arg")                 // r.Code, r.Stdout, r.Stderr
//		m.Put("/tmp/prog", 0o755, static)                         // any static binary
//		m.Spawn("agent", "/payload/trimtab", "agent")             // in the background, output in /var/log/agent.log
//		conn, err := m.Dial(ctx, "unix", "/run/containerd/containerd.sock")
//	}
//
// The cache keeps a snapshot of each booted machine. The name of the snapshot has a hash of the kernel, the disk, the
// version of QEMU and the arguments of QEMU. Each call of Start restores the snapshot with a new layer over the disk.
// The programs of this checkout are on a second disk, which Start mounts at /payload. So a change of these programs
// needs no boot. All processes end with the test, and QEMU also ends if the test's process is killed. A call takes
// about 0.02 to 0.15 s. So put many small steps into one script or static program.
//
// Do not measure times in a guest, because the guest is about seven times slower than the host.
package vm
