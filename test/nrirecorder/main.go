// Command nrirecorder is an NRI plugin that changes nothing and writes each message of the runtime as a line of JSON.
// Trimtab's tests replay such recordings (internal/attach/nri/testdata/recorded). A recording of another runtime, or of
// another release of a runtime, shows how Trimtab behaves with it.
//
//	go run ./test/nrirecorder -out nri.jsonl   # as root; stop it with Ctrl-C
//
// Without -all, a recording has neither the arguments of containers nor the values of their environment variables. It
// always has labels and annotations. Check these before you give a recording to others.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/runtimes"
)

func main() {
	var o options
	out := flag.String("out", "nri.jsonl", "append the messages to this file")
	flag.StringVar(&o.socket, "socket", api.DefaultSocketPath, "NRI socket of the runtime")
	flag.StringVar(&o.name, "name", "recorder", "name of the plugin")
	flag.StringVar(&o.index, "index", "99", "index of the plugin: a plugin with index 99 sees the changes of all other plugins")
	flag.BoolVar(&o.all, "all", false, "also write the arguments and the values of environment variables, which may be secret")
	flag.Parse()
	file, err := os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		o.out = file
		err = record(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nrirecorder:", err)
		os.Exit(1)
	}
}

// options are the flags of the command, and the output.
type options struct {
	socket, name, index string    // the runtime's NRI socket, and the name and NRI index of this plugin
	all                 bool      // also write arguments and the values of environment variables
	out                 io.Writer // the file to which the messages are appended
}

// record writes messages until ctx ends or the runtime closes the connection.
func record(ctx context.Context, o options) error {
	r := &recorder{o: o, start: time.Now()}
	var err error
	r.stub, err = stub.New(r, stub.WithPluginName(o.name), stub.WithPluginIdx(o.index), stub.WithSocketPath(o.socket))
	if err == nil {
		err = r.stub.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot record the messages at the NRI socket %s: %w", o.socket, err)
	}
	return nil
}

// recorder is the NRI plugin. Its exported methods are the handlers of NRI messages.
type recorder struct {
	o     options
	stub  stub.Stub
	start time.Time // when the recording began

	mu sync.Mutex // held while a line is written
}

// line is one message of the runtime, as a line of the recording.
type line struct {
	Event     string          `json:"event"`
	MS        int64           `json:"ms"` // since the plugin connected
	Runtime   string          `json:"runtime,omitempty"`
	Version   string          `json:"version,omitempty"`
	Config    string          `json:"config,omitempty"`
	Pod       json.RawMessage `json:"pod,omitempty"`
	Container json.RawMessage `json:"container,omitempty"`
	Resources json.RawMessage `json:"resources,omitempty"`
	Overhead  json.RawMessage `json:"overhead,omitempty"`
	In        json.RawMessage `json:"in,omitempty"` // the request of a Synchronize
}

// write writes a line. It logs an error and returns nil.
func (r *recorder) write(l line) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.MS = time.Since(r.start).Milliseconds()
	text, err := json.Marshal(l)
	if err == nil {
		_, err = r.o.out.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "nrirecorder: cannot record the message %s: %v\n", l.Event, err)
	}
	return nil // if the plugin returned an error, the runtime's request would fail
}

// toJSON returns a protobuf message as JSON; nil if m is nil.
func toJSON[M proto.Message](m M) json.RawMessage {
	if !m.ProtoReflect().IsValid() {
		return nil
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil
	}
	return text
}

// hidden replaces each argument and each value of an environment variable.
const hidden = "hidden"

// recordedContainer returns the container as it is recorded: without the option all, with hidden arguments and values.
func (r *recorder) recordedContainer(c *api.Container) *api.Container {
	if r.o.all || c == nil {
		return c
	}
	c = proto.CloneOf(c)
	for i := range c.Args {
		c.Args[i] = hidden
	}
	for i, e := range c.Env {
		name, _, _ := strings.Cut(e, "=")
		c.Env[i] = name + "=" + hidden
	}
	return c
}

// recordEvent records an event about a pod, or about a container if c is not nil.
func (r *recorder) recordEvent(name string, p *api.PodSandbox, c *api.Container) error {
	return r.write(line{Event: name, Pod: toJSON(p), Container: toJSON(r.recordedContainer(c))})
}

// Configure records the message, and subscribes to all events that the runtime knows. If a plugin subscribes to an
// event that the runtime does not know, the runtime drops the plugin and reports no error.
func (r *recorder) Configure(_ context.Context, config, runtime, version string) (api.EventMask, error) {
	mask := api.MustParseEventMask("all")
	mask.Clear(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	if runtimes.ParseVersion(r.stub.RuntimeNRIVersion()).Before(runtimes.Version{Major: 0, Minor: 10}) {
		mask.Clear(api.Event_UPDATE_POD_SANDBOX, api.Event_POST_UPDATE_POD_SANDBOX)
	}
	return mask, r.write(line{Event: "Configure", Runtime: runtime, Version: version, Config: config})
}

// Synchronize records all pods and containers.
func (r *recorder) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) { //nolint:unparam // the stub asks for this signature
	in := &api.SynchronizeRequest{Pods: pods}
	for _, c := range ctrs {
		in.Containers = append(in.Containers, r.recordedContainer(c))
	}
	return nil, r.write(line{Event: "Synchronize", In: toJSON(in)})
}

// RunPodSandbox records the event.
func (r *recorder) RunPodSandbox(_ context.Context, p *api.PodSandbox) error {
	return r.recordEvent("RunPodSandbox", p, nil)
}

// UpdatePodSandbox records the event with the requested resources.
func (r *recorder) UpdatePodSandbox(_ context.Context, p *api.PodSandbox, overhead, res *api.LinuxResources) error {
	return r.write(line{Event: "UpdatePodSandbox", Pod: toJSON(p), Overhead: toJSON(overhead), Resources: toJSON(res)})
}

// PostUpdatePodSandbox records the event.
func (r *recorder) PostUpdatePodSandbox(_ context.Context, p *api.PodSandbox) error {
	return r.recordEvent("PostUpdatePodSandbox", p, nil)
}

// StopPodSandbox records the event.
func (r *recorder) StopPodSandbox(_ context.Context, p *api.PodSandbox) error {
	return r.recordEvent("StopPodSandbox", p, nil)
}

// RemovePodSandbox records the event.
func (r *recorder) RemovePodSandbox(_ context.Context, p *api.PodSandbox) error {
	return r.recordEvent("RemovePodSandbox", p, nil)
}

// CreateContainer records the event and changes nothing.
func (r *recorder) CreateContainer(_ context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) { //nolint:unparam // the stub asks for this signature
	return nil, nil, r.recordEvent("CreateContainer", p, c)
}

// PostCreateContainer records the event.
func (r *recorder) PostCreateContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	return r.recordEvent("PostCreateContainer", p, c)
}

// StartContainer records the event.
func (r *recorder) StartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	return r.recordEvent("StartContainer", p, c)
}

// PostStartContainer records the event.
func (r *recorder) PostStartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	return r.recordEvent("PostStartContainer", p, c)
}

// UpdateContainer records the requested resources and changes nothing.
func (r *recorder) UpdateContainer(_ context.Context, p *api.PodSandbox, c *api.Container, res *api.LinuxResources) ([]*api.ContainerUpdate, error) { //nolint:unparam // the stub asks for this signature
	return nil, r.write(line{Event: "UpdateContainer", Pod: toJSON(p), Container: toJSON(r.recordedContainer(c)), Resources: toJSON(res)})
}

// PostUpdateContainer records the event.
func (r *recorder) PostUpdateContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	return r.recordEvent("PostUpdateContainer", p, c)
}

// StopContainer records the event.
func (r *recorder) StopContainer(_ context.Context, p *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) { //nolint:unparam // the stub asks for this signature
	return nil, r.recordEvent("StopContainer", p, c)
}

// RemoveContainer records the event.
func (r *recorder) RemoveContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	return r.recordEvent("RemoveContainer", p, c)
}
