// Package vm gives tests a virtual machine of their own: QEMU in software emulation, a kernel of a Debian release,
// cgroup v1 or v2, sockets, dies, threads and NUMA nodes as wanted, busybox or systemd, and a running containerd.
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
// What decides a machine (kernel, disk, QEMU and its arguments) is hashed; a snapshot of the booted machine is kept in
// the cache under that hash and each Start is a copy of it with a disk of its own. The programs of this checkout are on
// a second disk, mounted at /payload after the restore, so that a change of ours costs no boot. Everything that was
// started ends with the test, and QEMU ends with the test's process however that ends. A call costs about 0.02 to
// 0.15 s: many small steps belong into one script or one static program.
//
// Timing inside means nothing: emulation is some seven times slower than the machine it runs on.
package vm
