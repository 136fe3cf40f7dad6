-- CHARTEVENTS, in one pass: the vital signs of items.csv and the ventilator settings of ventilation.csv.
-- A number is what reads as one: in VALUENUM, or else in VALUE. `text` is kept for ventilator settings alone.
SELECT
    try_cast(subject_id AS INTEGER) AS subject_id,
    try_cast(itemid AS INTEGER) AS itemid,
    try_cast(charttime AS TIMESTAMP) AS charttime,
    coalesce(try_cast(valuenum AS DOUBLE), try_cast(value AS DOUBLE)) AS number,
    coalesce(trim(valuenum), '') <> '' OR coalesce(trim(value), '') <> '' AS filled,
    coalesce(trim(error), '') = '1' AS wrong,
    CASE
        WHEN itemid IN (SELECT itemid::VARCHAR FROM ventilation WHERE only_if <> '' OR not_if <> '') THEN trim(value)
    END AS text
FROM source
WHERE itemid IN (
    SELECT itemid::VARCHAR FROM items WHERE events = 'chartevents'
    UNION
    SELECT itemid::VARCHAR FROM ventilation WHERE events = 'chartevents'
)
