package metadatatopic_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// cluster is a Kafka of one broker that answers what a resolver asks, with answers that the test sets. It knows nothing else.
type cluster struct {
	t        testing.TB
	listener net.Listener
	done     sync.WaitGroup

	mu      sync.Mutex
	topics  map[string]*topic
	conns   map[net.Conn]bool
	asked   map[int16]int // requests by key
	held    bool          // fetches find nothing
	closed  bool
	arrived chan struct{} // closed when records come
}

type topic struct {
	id         remotestorage.UUID
	err        int16
	operations int32
	parts      []*part
}

// part is a partition: of the metadata topic its values, of others the leader's facts.
type part struct {
	leaderEpoch                   int32
	noLeader                      bool
	start, local, stable, high    int64
	values                        [][]byte // of the offsets start to high
	epochEnds                     func(asked int32) (found int32, end int64)
	offsetsError, leaderEpochFail int16
}

const (
	errUnknownTopic   = 3
	errNotLeader      = 6
	errUnauthorized   = 29
	errFenced         = 74
	errUnknownEpoch   = 75
	errUnknownTopicID = 100
	allOperations     = 1<<3 | 1<<8
)

func newCluster(t testing.TB, metadataPartitions int) *cluster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t: t, listener: l, topics: make(map[string]*topic), conns: make(map[net.Conn]bool), asked: make(map[int16]int), arrived: make(chan struct{}),
	}
	c.create("__remote_log_metadata", metadataPartitions)
	c.done.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

func (c *cluster) address() string { return c.listener.Addr().String() }

func (c *cluster) close() {
	c.mu.Lock()
	c.closed = true
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.listener.Close()
	c.done.Wait()
}

// create makes a topic, or makes one of that name anew.
func (c *cluster) create(name string, partitions int) *topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &topic{id: remotestorage.RandomUUID(), operations: allOperations}
	for range partitions {
		l := epoch.New([]remotestorage.EpochStart{{}})
		p := &part{}
		p.epochEnds = func(asked int32) (int32, int64) { return l.EndOffsetFor(asked, p.high) }
		t.parts = append(t.parts, p)
	}
	c.topics[name] = t
	return t
}

// set changes things under the cluster's lock.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.arriveLocked()
}

func (c *cluster) arriveLocked() {
	close(c.arrived)
	c.arrived = make(chan struct{})
}

// publish appends records to the metadata topic, each where it belongs.
func (c *cluster) publish(records ...remotelog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		var tp remotestorage.TopicIDPartition
		switch m := r.(type) {
		case *remotelog.SegmentRecord:
			tp = m.TopicIDPartition
		case *remotelog.UpdateRecord:
			tp = m.TopicIDPartition
		}
		t := c.topics["__remote_log_metadata"]
		c.appendLocked(remotelog.MetadataPartition(tp, int32(len(t.parts))), remotelog.Append(nil, r))
	}
	c.arriveLocked()
}

func (c *cluster) append(partition int32, value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appendLocked(partition, value)
	c.arriveLocked()
}

func (c *cluster) appendLocked(partition int32, value []byte) {
	p := c.topics["__remote_log_metadata"].parts[partition]
	p.values = append(p.values, value)
	p.high++
	p.stable = p.high
}

// requests is how many of a key have come.
func (c *cluster) requests(key int16) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[key]
}

func (c *cluster) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.conns[conn] = true
		closed := c.closed
		c.mu.Unlock()
		if closed {
			conn.Close()
		}
		c.done.Go(func() { c.serve(conn) })
	}
}

func (c *cluster) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	}()
	for {
		frame, err := wire.ReadFrame(conn, 1<<20, nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				c.mu.Lock()
				if !c.closed {
					c.t.Logf("fake broker: %v", err)
				}
				c.mu.Unlock()
			}
			return
		}
		h, err := wire.ParseRequestHeader(frame)
		if err != nil {
			c.t.Errorf("fake broker: %v", err)
			return
		}
		req := kmsg.RequestForKey(h.Key)
		req.SetVersion(h.Version)
		if err := req.ReadFrom(h.Body); err != nil {
			c.t.Errorf("fake broker: key %d version %d: %v", h.Key, h.Version, err)
			return
		}
		resp := c.answer(req)
		if resp == nil {
			c.t.Errorf("fake broker: key %d is not served", h.Key)
			return
		}
		resp.SetVersion(h.Version)
		if _, err := conn.Write(wire.AppendResponse(nil, resp, h.CorrelationID)); err != nil {
			return
		}
	}
}

func (c *cluster) answer(req kmsg.Request) kmsg.Response {
	c.mu.Lock()
	c.asked[req.Key()]++
	c.mu.Unlock()
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return c.apiVersions()
	case *kmsg.MetadataRequest:
		return c.metadata(req)
	case *kmsg.ListOffsetsRequest:
		return c.listOffsets(req)
	case *kmsg.OffsetForLeaderEpochRequest:
		return c.endOffsets(req)
	case *kmsg.FetchRequest:
		return c.fetch(req)
	}
	return nil
}

func (c *cluster) apiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	for _, k := range [][3]int16{{1, 4, 12}, {2, 1, 9}, {3, 0, 12}, {18, 0, 3}, {23, 0, 4}} {
		v := kmsg.NewApiVersionsResponseApiKey()
		v.ApiKey, v.MinVersion, v.MaxVersion = k[0], k[1], k[2]
		resp.ApiKeys = append(resp.ApiKeys, v)
	}
	return resp
}

func (c *cluster) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := kmsg.NewPtrMetadataResponse()
	b := kmsg.NewMetadataResponseBroker()
	host, port, _ := net.SplitHostPort(c.address())
	n, _ := strconv.Atoi(port)
	b.NodeID, b.Host, b.Port = 1, host, int32(n)
	resp.Brokers, resp.ControllerID = append(resp.Brokers, b), 1
	for _, rt := range req.Topics {
		out := kmsg.NewMetadataResponseTopic()
		out.Topic, out.TopicID = rt.Topic, rt.TopicID
		var t *topic
		if rt.Topic != nil {
			t = c.topics[*rt.Topic]
			out.ErrorCode = errUnknownTopic
		} else {
			out.ErrorCode = errUnknownTopicID
			for name, x := range c.topics {
				if x.id == rt.TopicID {
					t, out.Topic = x, &name
				}
			}
		}
		if t != nil {
			if out.ErrorCode = t.err; t.err != 0 {
				out.Topic = rt.Topic // who may not see it is not told more than was asked
			}
		}
		if t != nil && t.err == 0 {
			out.TopicID, out.AuthorizedOperations = t.id, t.operations
			for i, p := range t.parts {
				rp := kmsg.NewMetadataResponseTopicPartition()
				rp.Partition, rp.Leader, rp.LeaderEpoch, rp.Replicas, rp.ISR = int32(i), 1, p.leaderEpoch, []int32{1}, []int32{1}
				if p.noLeader {
					rp.Leader, rp.ErrorCode = -1, 5
				}
				out.Partitions = append(out.Partitions, rp)
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// partLocked finds a partition for a request that was meant for leaderEpoch.
func (c *cluster) partLocked(name string, partition, leaderEpoch int32) (*part, int16) {
	t := c.topics[name]
	switch {
	case t == nil || int(partition) >= len(t.parts):
		return nil, errUnknownTopic
	case t.err != 0:
		return nil, t.err
	}
	p := t.parts[partition]
	switch {
	case p.noLeader:
		return nil, errNotLeader
	case leaderEpoch >= 0 && leaderEpoch < p.leaderEpoch:
		return nil, errFenced
	case leaderEpoch > p.leaderEpoch:
		return nil, errUnknownEpoch
	}
	return p, 0
}

func (c *cluster) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, rt := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			o := kmsg.NewListOffsetsResponseTopicPartition()
			o.Partition, o.Offset, o.Timestamp = rp.Partition, -1, -1
			p, code := c.partLocked(rt.Topic, rp.Partition, rp.CurrentLeaderEpoch)
			if o.ErrorCode = code; code == 0 {
				o.ErrorCode = p.offsetsError
			}
			if o.ErrorCode == 0 {
				o.LeaderEpoch = p.leaderEpoch
				switch {
				case rp.Timestamp == -1 && req.IsolationLevel == 1:
					o.Offset = p.stable
				case rp.Timestamp == -1:
					o.Offset = p.high
				case rp.Timestamp == -2:
					o.Offset = p.start
				case rp.Timestamp == -4:
					o.Offset = p.local
				}
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *cluster) endOffsets(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, rt := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			o := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			o.Partition, o.LeaderEpoch, o.EndOffset = rp.Partition, -1, -1
			p, code := c.partLocked(rt.Topic, rp.Partition, rp.CurrentLeaderEpoch)
			if o.ErrorCode = code; code == 0 {
				o.ErrorCode = p.leaderEpochFail
			}
			if o.ErrorCode == 0 {
				o.LeaderEpoch, o.EndOffset = p.epochEnds(rp.LeaderEpoch)
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// fetch waits for records, as a broker does.
func (c *cluster) fetch(req *kmsg.FetchRequest) kmsg.Response {
	timeout := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		resp, found := c.fetchLocked(req)
		arrived, closed := c.arrived, c.closed
		c.mu.Unlock()
		if found || closed {
			return resp
		}
		select {
		case <-arrived:
		case <-timeout.C:
			return resp
		case <-time.After(50 * time.Millisecond): // to see the cluster closed
		}
	}
}

func (c *cluster) fetchLocked(req *kmsg.FetchRequest) (resp *kmsg.FetchResponse, found bool) {
	resp = kmsg.NewPtrFetchResponse()
	for _, rt := range req.Topics {
		out := kmsg.NewFetchResponseTopic()
		out.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			o := kmsg.NewFetchResponseTopicPartition()
			o.Partition, o.RecordBatches = rp.Partition, []byte{}
			p, code := c.partLocked(rt.Topic, rp.Partition, -1)
			if o.ErrorCode = code; code == 0 {
				o.HighWatermark, o.LastStableOffset, o.LogStartOffset = p.high, p.stable, p.start
				if rp.FetchOffset < p.start || rp.FetchOffset > p.high {
					o.ErrorCode = 1
				} else if !c.held {
					o.RecordBatches = batches(p, rp.FetchOffset)
				}
			}
			found = found || o.ErrorCode != 0 || len(o.RecordBatches) > 0
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, found
}

func batches(p *part, from int64) []byte {
	out := []byte{}
	for offset := from; offset < p.high && len(out) < 1<<20; offset++ {
		at := len(out)
		out = batch.AppendSimple(out, 1, nil, p.values[int64(len(p.values))-(p.high-offset)])
		binary.BigEndian.PutUint64(out[at:], uint64(offset))
		binary.BigEndian.PutUint32(out[at+12:], 0) // leader epoch
	}
	return out
}

// lead gives a partition a lineage, ending in its current leader epoch.
func (c *cluster) lead(p *part, entries ...int64) {
	var starts []remotestorage.EpochStart
	for i := 0; i < len(entries); i += 2 {
		starts = append(starts, remotestorage.EpochStart{LeaderEpoch: int32(entries[i]), StartOffset: entries[i+1]})
	}
	l := epoch.New(starts)
	c.set(func() {
		p.leaderEpoch = starts[len(starts)-1].LeaderEpoch
		p.epochEnds = func(asked int32) (int32, int64) {
			if asked == math.MinInt32 {
				return -1, -1
			}
			return l.EndOffsetFor(asked, p.high)
		}
	})
}
