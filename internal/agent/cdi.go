package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cdispec"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// cdiSpecs reads the devices in the node's CDI specifications. It parses them again only after a file has changed.
type cdiSpecs struct {
	dirs []string
	log  *slog.Logger
	host *lifecycle.Host // a described host, whose devices replace those of the files; nil for this node

	mu          sync.Mutex // guards all below
	fingerprint string     // the names, sizes and times of the files when they were read last
	specDevices []cdispec.Device
	nodes       []lifecycle.NodeDevice // the devices of specDevices with their device nodes
	faults      []cdispec.Fault        // the logged faults of the files
}

func cdiSpecsOf(o Options) *cdiSpecs {
	return &cdiSpecs{dirs: o.Config.Paths.CDI, log: o.Log, host: o.Host}
}

// devices returns the node's CDI devices. For a described host it reads no files. Callers must not change the slice.
func (c *cdiSpecs) devices() []lifecycle.NodeDevice {
	if c.host != nil {
		return c.host.CDI
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	return c.nodes
}

// ownedDevices returns the node's CDI devices if the configuration has classes of exclusive devices; otherwise nil.
func (a *Agent) ownedDevices() []lifecycle.NodeDevice {
	if o := a.settings.current().Hooks.CDIDevices; !o.Enabled || len(o.Classes) == 0 {
		return nil
	}
	return a.node.cdi.devices()
}

// variables returns the environment variables of each CDI device, by its qualified name, and the faults of the files.
func (c *cdiSpecs) variables() (by map[string][]string, faults []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	by = make(map[string][]string, len(c.specDevices))
	for i := range c.specDevices {
		by[c.specDevices[i].Name] = c.specDevices[i].Env
	}
	for _, f := range c.faults {
		faults = append(faults, f.String())
	}
	return by, faults
}

// warnOfMissingDirs logs a warning if the configuration needs CDI specifications or resource claims, and none of the
// directories of CDI specifications exists, or the directory of the claims does not. If the agent runs in a pod, these
// directories may not be mounted.
func warnOfMissingDirs(o Options) {
	dra := o.Config.Authority == "dra"
	if o.Host != nil || !dra && len(o.Config.Hooks.CDIDevices.Classes) == 0 {
		return
	}
	exists := func(dir string) bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	if dirs := o.Config.Paths.CDI; !slices.ContainsFunc(dirs, exists) {
		o.Log.Warn("no directory of CDI specifications exists (paths.cdi), so the agent knows no CDI devices", logkey.File, strings.Join(dirs, " "))
	}
	if file := o.Config.Paths.DRACheckpoint; dra && file != "" && !exists(filepath.Dir(file)) {
		o.Log.Warn("the directory of the kubelet's claims does not exist (paths.draCheckpoint), so the agent cannot check which pod a claim belongs to", logkey.File, file)
	}
}

// read parses the specifications if a file has changed. The caller holds mu.
func (c *cdiSpecs) read() {
	stamp := fingerprintOf(c.dirs)
	if stamp == c.fingerprint {
		return
	}
	known, faults := cdispec.Read(c.dirs)
	for _, f := range faults {
		if !slices.Contains(c.faults, f) {
			c.log.Warn("the agent cannot use a part of the node's CDI specifications", logkey.File, f.File, logkey.Err, f.Reason)
		}
	}
	c.fingerprint, c.specDevices, c.faults = stamp, known, faults
	c.nodes = make([]lifecycle.NodeDevice, len(known))
	for i := range known {
		c.nodes[i] = lifecycle.NodeDevice{Name: known[i].Name, Nodes: known[i].Nodes}
	}
}

// fingerprintOf returns a text with the names, sizes and times of the files in directories. It changes when a file
// changes.
func fingerprintOf(dirs []string) string {
	var b strings.Builder
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		fmt.Fprintln(&b, dir, err)
		for _, e := range entries {
			if at, err := os.Stat(filepath.Join(dir, e.Name())); err == nil {
				fmt.Fprintln(&b, e.Name(), at.Size(), at.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}
