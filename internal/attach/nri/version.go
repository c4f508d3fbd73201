package nri

import (
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// version is an NRI release; the zero value means unknown.
type version = runtimes.Version

// laterRelease returns the later of two releases.
func laterRelease(a, b string) string {
	if runtimes.ParseVersion(a).Before(runtimes.ParseVersion(b)) {
		return b
	}
	return a
}

// nriRelease returns the runtime's NRI release. If the runtime did not state it, the NRI release comes from a table
// of the NRI library. That table needs a leading v in the runtime's release, which some runtimes leave out.
// nriRelease returns "" if the NRI release is unknown.
func nriRelease(stated, runtime, release string) string {
	if runtimes.ParseVersion(stated) != (version{}) {
		return stated
	}
	if runtime == EmbeddedRuntime {
		return release
	}
	release, _, _ = strings.Cut(release, "~") // Debian adds a suffix that semantic versions do not have
	if !strings.HasPrefix(release, "v") {
		release = "v" + release
	}
	inferred, err := api.InferVersionFromRuntime(runtime, release)
	if err != nil || runtimes.ParseVersion(inferred) == (version{}) {
		return ""
	}
	return inferred
}

// EmbeddedRuntime is the name that Trimtab's embedded runtime reports. EmbeddedRelease is the release that it reports,
// which is the release of its NRI library. The release is a constant, because the library reads its own release from
// the binary, and test binaries do not have it.
const (
	EmbeddedRuntime = "trimtab-sim"
	EmbeddedRelease = "0.12.5"
)

// podUpdatesSince is the first NRI release with UpdatePodSandbox.
var podUpdatesSince = version{Major: 0, Minor: 10}

// nriEvents has the NRI event for each kind of event to which a plugin can subscribe. A plugin cannot subscribe to
// Synchronize, because the runtime always sends it.
var nriEvents = map[lifecycle.Kind]api.Event{
	lifecycle.RunPodSandbox:       api.Event_RUN_POD_SANDBOX,
	lifecycle.UpdatePodSandbox:    api.Event_UPDATE_POD_SANDBOX,
	lifecycle.StopPodSandbox:      api.Event_STOP_POD_SANDBOX,
	lifecycle.RemovePodSandbox:    api.Event_REMOVE_POD_SANDBOX,
	lifecycle.CreateContainer:     api.Event_CREATE_CONTAINER,
	lifecycle.PostCreateContainer: api.Event_POST_CREATE_CONTAINER,
	lifecycle.StartContainer:      api.Event_START_CONTAINER,
	lifecycle.PostStartContainer:  api.Event_POST_START_CONTAINER,
	lifecycle.UpdateContainer:     api.Event_UPDATE_CONTAINER,
	lifecycle.PostUpdateContainer: api.Event_POST_UPDATE_CONTAINER,
	lifecycle.StopContainer:       api.Event_STOP_CONTAINER,
	lifecycle.RemoveContainer:     api.Event_REMOVE_CONTAINER,
}

// subscription returns the mask of the events to which the agent subscribes. If a plugin subscribes to an event that
// the runtime does not know, the runtime disconnects the plugin, without an error and after Start succeeded. So the
// mask leaves out the events that an older or unknown release does not have.
func subscription(wants []lifecycle.Kind, p peer) api.EventMask {
	var mask api.EventMask
	for _, k := range wants {
		if e, ok := nriEvents[k]; ok {
			mask.Set(e)
		}
	}
	if !p.isAtLeast(podUpdatesSince) {
		mask.Clear(api.Event_UPDATE_POD_SANDBOX)
	}
	if mask == 0 {
		// The stub takes an empty mask as a subscription to all events that the session handles. So subscribe to one
		// event: RemovePodSandbox costs the agent less than all other events.
		mask.Set(api.Event_REMOVE_POD_SANDBOX)
	}
	return mask
}
