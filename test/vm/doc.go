// Package vm gives each test its own virtual machine: QEMU in software emulation, a Debian kernel, cgroup v1 or v2, a
// choice of sockets, dies, threads and NUMA nodes, busybox or systemd, and a running containerd.
//
//	func TestMain(m *testing.M) { vm.Main(m) }
//
//	func TestCpuset(t *testing.T) {
//		m := vm.Start(t, vm.Guest{Topology: vm.FourNodes, Kernel: "6.12"}) // under a second, once its snapshot was taken
//		m.Run("mkdir", "/sys/fs/cgroup/a")
//		m.Sh("echo 0-1 > /sys/fs/cgroup/a/cpuset.cpus")           // ends the test if it fails
//		if got := m.Read("/sys/fs/cgroup/a/cpuset.cpus"); got != "0-1" { … }
//		r, err := m.Exec(ctx, "/tmp/prog", "arg")                 // r.Code, r.Stdout, r.Stderr
//		m.Put("/tmp/prog", 0o755, static)                         // any static binary
//		m.Spawn("agent", "/payload/trimtab", "agent")             // in the background, output in /var/log/agent.log
//		conn, err := m.Dial(ctx, "unix", "/run/containerd/containerd.sock")
//	}
//
// The cache keeps a snapshot of each booted machine under a hash of its kernel, disk, QEMU and arguments. Each Start
// copies that snapshot with a new disk layer. The programs of this checkout are on a second disk, which is mounted at
// /payload after the restore, so that a change of them needs no boot. All processes end with the test, and QEMU also
// ends if the test's process is killed. A call takes about 0.02 to 0.15 s: put many small steps into one script or
// static program.
//
// Do not measure times in a guest: emulation is some seven times slower than the host.
package vm
