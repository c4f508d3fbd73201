package vm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A snapshot is a directory with two files: a layer over the root disk, and the state of the machine's memory and
// devices. The two files belong together. They fit only the machine from which they were taken.
const (
	layerFile = "layer.qcow2"
	stateFile = "state"
)

// snapshot returns the directory of a guest's snapshot, and the arguments of QEMU that define the guest. It makes the
// snapshot if the cache does not have it.
func (g Guest) snapshot(ctx context.Context) (dir string, hardware []string, err error) {
	k, err := kernelOf(ctx, g.Kernel)
	if err != nil {
		return "", nil, err
	}
	image, err := g.image(ctx)
	if err != nil {
		return "", nil, err
	}
	clock, rate := clockArgs()
	hardware = g.hardware(k, clock)
	version, err := qemuVersion()
	if err != nil {
		return "", nil, err
	}
	stageKey, err := g.Stage.key()
	if err != nil {
		return "", nil, err
	}
	key := sha256.Sum256([]byte(strings.Join(append(g.hardware(k, rate), image, version, stageKey, bootProtocol), "\x00")))
	cache, err := cacheDir()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(cache, fmt.Sprintf("snapshot-%s-%x", strings.ReplaceAll(g.String(), " ", "-"), key[:8]))
	err = buildOnce(dir, func(work string) error { return g.makeSnapshot(ctx, hardware, image, work) })
	return dir, hardware, err
}

// bootProtocol is the version of the steps in makeSnapshot. Change it together with the steps, so that the tests do not
// use older snapshots.
const bootProtocol = "1"

// makeSnapshot boots a guest, brings the guest to its stage, and saves the snapshot in the directory work.
func (g Guest) makeSnapshot(ctx context.Context, hardware []string, image, work string) error {
	begun := time.Now()
	printProgress("%s: booting the guest to take a snapshot", g)
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	layer := filepath.Join(work, layerFile)
	create := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", image, layer)
	if _, err := runBuildCommand(create); err != nil {
		return err
	}
	// The guest does not use the disk with the programs of the checkout before the snapshot. So an empty disk suffices.
	payload := filepath.Join(work, "payload")
	if err := os.WriteFile(payload, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(payload, payloadSize); err != nil {
		return err
	}
	defer os.Remove(payload)
	p, err := start(ctx, hardware, launchOptions{disk: "format=qcow2,file=" + layer, payload: payload})
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	defer p.end()
	c := newGuestClient(p.address)
	err = c.awaitReady(ctx, p.exited)
	if err == nil {
		err = c.setClock(ctx)
	}
	if err == nil {
		err = c.checkClock(ctx, func() error { return g.prepare(ctx, c) })
	}
	if err != nil {
		console, _ := os.ReadFile(p.console())
		output, _ := os.ReadFile(p.outputFile())
		return fmt.Errorf("boot %s: %w; the output of QEMU and the console:\n%s%s", g, err, lastLines(string(output)), lastLines(string(console)))
	}
	c.client.CloseIdleConnections()
	if err := p.monitor.save(ctx, filepath.Join(work, stateFile)); err != nil {
		return err
	}
	printProgress("%s: took the snapshot after %.1f s", g, time.Since(begun).Seconds())
	return nil
}

// qemuVersion returns the text that QEMU prints with --version.
var qemuVersion = sync.OnceValues(func() (string, error) {
	out, err := exec.Command(qemuProgram, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w; test/tools/deps.sh e2e installs QEMU", qemuProgram, err)
	}
	return string(out), nil
})

// lastLines returns the last 60 lines of a log.
func lastLines(text string) string {
	const lines = 60
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n") + "\n"
}
