-- ICUSTAYS: who was in intensive care, and from when to when. `copies` counts rows that repeat a stay's number.
SELECT
    try_cast(icustay_id AS INTEGER) AS icustay_id,
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(intime AS TIMESTAMP) AS intime,
    try_cast(outtime AS TIMESTAMP) AS outtime,
    count(*) OVER (PARTITION BY try_cast(icustay_id AS INTEGER)) - 1 AS copies
FROM source
WHERE try_cast(icustay_id AS INTEGER) IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY try_cast(icustay_id AS INTEGER) ORDER BY source.intime, source.outtime) = 1
