package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pushes are descriptions of topologies, which nobody asks for where there is no plug-in for them.
func (s *streamsSession) pushes() {
	s.beat("a joins", 1, "push", "a", 0, joining(1, s.plain("t")))
	push := func(what, group, member string, epoch int32, d kmsg.TopologyDescription) {
		s.t.Helper()
		req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
		req.Group, req.MemberID, req.TopologyEpoch, req.TopologyDescription = group, member, epoch, d
		s.step("push, "+what, 0, req)
	}
	source := kmsg.NewTopologyDescriptionNode()
	source.Name, source.NodeType, source.SourceTopics = "source", 1, []string{s.prefix + "t"}
	sub := kmsg.NewTopologyDescriptionSubtopology()
	sub.SubtopologyID, sub.Nodes = "0", []kmsg.TopologyDescriptionNode{source}
	good := kmsg.NewTopologyDescription()
	good.Subtopologies = []kmsg.TopologyDescriptionSubtopology{sub}
	push("of a member", s.gid("push"), "a", 1, good)
	push("of a stranger", s.gid("push"), "b", 1, good)
	push("of another epoch", s.gid("push"), "a", 7, good)
	push("of nobody", s.gid("push"), "", 1, good)
	push("of no group", "", "a", 1, good)
	push("of a group that is not there", s.gid("push-unknown"), "a", 1, good)
	push("of nothing", s.gid("push"), "a", 1, kmsg.NewTopologyDescription())
}
