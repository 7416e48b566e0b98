package batch

import "encoding/binary"

// AppendMarker appends the control batch that ends a transaction: one record, its key int16 version 0 and int16 type, its value int16 version 0 and int32
// coordinator epoch. Base offset and leader epoch are a log's to assign.
func AppendMarker(dst []byte, timestampMs, producerID int64, producerEpoch int16, commit bool, coordinatorEpoch int32) []byte {
	kind := byte(ControlAbort)
	if commit {
		kind = ControlCommit
	}
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))
	start := len(dst)
	dst = AppendSimple(dst, timestampMs, []byte{0, 0, 0, kind}, value)
	b, be := dst[start:], binary.BigEndian
	be.PutUint16(b[offAttributes:], Transactional|Control)
	be.PutUint64(b[offProducerID:], uint64(producerID))
	be.PutUint16(b[offProducerEp:], uint16(producerEpoch))
	FixCRC(b)
	return dst
}
