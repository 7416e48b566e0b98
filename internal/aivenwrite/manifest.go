package aivenwrite

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
)

type manifest struct {
	Version        string      `json:"version"`
	ChunkIndex     any         `json:"chunkIndex"`
	SegmentIndexes indexes     `json:"segmentIndexes"`
	Compression    bool        `json:"compression"`
	Encryption     *encryption `json:"encryption,omitempty"`
	Metadata       struct {
		ID struct {
			TopicIDPartition struct {
				TopicID        string `json:"topicId"`
				TopicPartition struct {
					Topic     string `json:"topic"`
					Partition int32  `json:"partition"`
				} `json:"topicPartition"`
			} `json:"topicIdPartition"`
			ID string `json:"id"`
		} `json:"remoteLogSegmentId"`
		StartOffset    int64 `json:"startOffset"`
		EndOffset      int64 `json:"endOffset"`
		MaxTimestampMs int64 `json:"maxTimestampMs"`
	} `json:"remoteLogSegmentMetadata"`
}

type encryption struct {
	DataKey string `json:"dataKey"`
	AAD     string `json:"aad"`
}

type indexes struct {
	Offset           index  `json:"offset"`
	Timestamp        index  `json:"timestamp"`
	ProducerSnapshot index  `json:"producerSnapshot"`
	LeaderEpoch      index  `json:"leaderEpoch"`
	Transaction      *index `json:"transaction"` // null: there is none
}

type index struct {
	Position int `json:"position"`
	Size     int `json:"size"`
}

type fixedIndex struct {
	Type                      string `json:"type"`
	OriginalChunkSize         int    `json:"originalChunkSize"`
	OriginalFileSize          int64  `json:"originalFileSize"`
	TransformedChunkSize      int    `json:"transformedChunkSize"`
	FinalTransformedChunkSize int    `json:"finalTransformedChunkSize"`
}

type variableIndex struct {
	Type              string `json:"type"`
	OriginalChunkSize int    `json:"originalChunkSize"`
	OriginalFileSize  int64  `json:"originalFileSize"`
	TransformedChunks string `json:"transformedChunks"`
}

func (w *Writer) chunkIndex(fileSize int64, sizes []int) any {
	if w.o.Compress {
		return variableIndex{"variable", w.o.ChunkSize, fileSize, base64.StdEncoding.EncodeToString(w.zstd.EncodeAll(appendSizes(nil, sizes), nil))}
	}
	whole, last := w.o.ChunkSize, 0
	if w.o.Key != nil {
		whole += 28
	}
	if len(sizes) > 0 {
		last = sizes[len(sizes)-1]
	}
	return fixedIndex{"fixed", w.o.ChunkSize, fileSize, whole, last}
}

// appendSizes packs the sizes: all but the last as differences from the smallest, in as few bytes as the largest needs.
func appendSizes(dst []byte, sizes []int) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(len(sizes)))
	if len(sizes) == 0 {
		return dst
	}
	head, last := sizes[:len(sizes)-1], sizes[len(sizes)-1]
	if len(head) > 0 {
		base := slices.Min(head)
		width := 1
		for most := slices.Max(head) - base; most>>(8*width) > 0; {
			width++
		}
		dst = append(be.AppendUint32(dst, uint32(base)), byte(width))
		for _, n := range head {
			for i := width - 1; i >= 0; i-- {
				dst = append(dst, byte((n-base)>>(8*i)))
			}
		}
	}
	return be.AppendUint32(dst, uint32(last))
}
